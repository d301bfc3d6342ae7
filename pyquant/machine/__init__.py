"""What a process runs on: processors, memory, versions, and the folder of caches."""
