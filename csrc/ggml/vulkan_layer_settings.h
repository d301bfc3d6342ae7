// What ggml-vulkan takes from VK_EXT_layer_settings, for headers that are older, as Debian 12's: put before
// its sources. The loader passes over a structure whose number it does not know.
#pragma once

#include <vulkan/vulkan_core.h>

#ifndef VK_EXT_layer_settings

#include <vector>

namespace vk {

enum class LayerSettingTypeEXT { eBool32 };

struct LayerSettingEXT {
    const char *layer, *name;
    LayerSettingTypeEXT type;
    uint32_t n_values;
    const void * values;
};

struct LayerSettingsCreateInfoEXT {
    explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> & all)
        : n_settings(uint32_t(all.size())),
          settings(all.data()) {}

    VkStructureType type = VkStructureType(1000496000);
    const void * next = nullptr;
    uint32_t n_settings;
    const LayerSettingEXT * settings;
};

}  // namespace vk

#endif
