// Loaded before libvulkan (LD_PRELOAD): a device that is lost when LOST_AFTER submissions are done, or lose()
// is called, as a driver says it of a card that hangs or is gone. What was submitted is waited for, as
// nothing runs on such a card.
#include <dlfcn.h>
#include <vulkan/vulkan.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> left = [] {
    const char * after = std::getenv("LOST_AFTER");
    return after ? std::atol(after) : -1;
}();

PFN_vkQueueSubmit submit;
PFN_vkWaitForFences wait_for_fences;
PFN_vkGetFenceStatus fence_status;
PFN_vkGetDeviceProcAddr device_function;

VkResult submit_or_lose(VkQueue queue, uint32_t n, const VkSubmitInfo * infos, VkFence fence) {
    if (left == 0) {
        return VK_ERROR_DEVICE_LOST;
    }
    --left;
    return submit(queue, n, infos, fence);
}

VkResult wait_or_lose(VkDevice device, uint32_t n, const VkFence * fences, VkBool32 all, uint64_t timeout) {
    const VkResult result = wait_for_fences(device, n, fences, all, timeout);
    return left == 0 ? VK_ERROR_DEVICE_LOST : result;
}

VkResult status_or_lose(VkDevice device, VkFence fence) {
    const VkResult result = fence_status(device, fence);
    return left == 0 && result == VK_SUCCESS ? VK_ERROR_DEVICE_LOST : result;
}

template <class Function>
PFN_vkVoidFunction in_place_of(Function & real, PFN_vkVoidFunction found, Function ours) {
    real = reinterpret_cast<Function>(found);
    return found ? reinterpret_cast<PFN_vkVoidFunction>(ours) : nullptr;
}

PFN_vkVoidFunction or_lose(const char * name, PFN_vkVoidFunction found) {
    if (std::strcmp(name, "vkQueueSubmit") == 0) {
        return in_place_of(submit, found, &submit_or_lose);
    }
    if (std::strcmp(name, "vkWaitForFences") == 0) {
        return in_place_of(wait_for_fences, found, &wait_or_lose);
    }
    if (std::strcmp(name, "vkGetFenceStatus") == 0) {
        return in_place_of(fence_status, found, &status_or_lose);
    }
    return found;
}

PFN_vkVoidFunction function_of_device(VkDevice device, const char * name) {
    return or_lose(name, device_function(device, name));
}

}  // namespace

extern "C" void lose() {
    left = 0;
}

extern "C" PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char * name) {
    static const auto real = reinterpret_cast<PFN_vkGetInstanceProcAddr>(
        dlsym(dlopen("libvulkan.so.1", RTLD_NOW), "vkGetInstanceProcAddr"));
    const PFN_vkVoidFunction found = real(instance, name);
    if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) {
        return in_place_of(device_function, found, &function_of_device);
    }
    return or_lose(name, found);
}
