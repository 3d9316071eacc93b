// A Vulkan driver in front of Mesa's RADV, opened for an AMD card that isn't there (RADV_FORCE_FAMILY). Shaders are compiled by
// AMD's real compiler (ACO); commands and submits do nothing, so nothing is ever computed.
//
//   cc -shared -fPIC -O1 -o libradv_null.so driver_shim.c -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef void (*Proc)(void);
typedef Proc (*GetProc)(void *, const char *);
typedef int (*Negotiate)(uint32_t *);

enum { INCOMPATIBLE_DRIVER = -9 };

static void *driver;
static GetProc instance_proc, device_proc;

static uint64_t nothing(void) { return 0; }

static const char *const unused[] = {
    "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkResetCommandPool", "vkResetCommandBuffer", "vkQueueSubmit",
    "vkQueueSubmit2",       "vkQueueSubmit2KHR",  "vkQueueWaitIdle",    "vkDeviceWaitIdle",     "vkWaitForFences",
    "vkGetFenceStatus",     "vkResetFences",      0};

static Proc replaced(const char *name) {
  if (!strncmp(name, "vkCmd", 5)) return (Proc)nothing;
  for (int i = 0; unused[i]; i++)
    if (!strcmp(name, unused[i])) return (Proc)nothing;
  return 0;
}

static int open_driver(void) {
  if (!driver) driver = dlopen("libvulkan_radeon.so", RTLD_NOW | RTLD_LOCAL);
  if (driver) instance_proc = (GetProc)dlsym(driver, "vk_icdGetInstanceProcAddr");
  return instance_proc != 0;
}

static Proc get_device_proc(void *device, const char *name) {
  Proc real = device_proc(device, name);
  Proc other = real ? replaced(name) : 0;
  return other ? other : real;
}

__attribute__((visibility("default"))) Proc vk_icdGetInstanceProcAddr(void *instance, const char *name) {
  if (!open_driver()) return 0;
  Proc real = instance_proc(instance, name);
  if (!real) return 0;
  if (!strcmp(name, "vkGetDeviceProcAddr")) {
    device_proc = (GetProc)real;
    return (Proc)get_device_proc;
  }
  Proc other = replaced(name);
  return other ? other : real;
}

__attribute__((visibility("default"))) int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
  if (!open_driver()) return INCOMPATIBLE_DRIVER;
  return ((Negotiate)dlsym(driver, "vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}

__attribute__((visibility("default"))) Proc vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
  if (!open_driver()) return 0;
  GetProc get = (GetProc)dlsym(driver, "vk_icdGetPhysicalDeviceProcAddr");
  return get ? get(instance, name) : 0;
}
