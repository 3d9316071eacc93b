// A Vulkan driver that Chromium takes for its SwiftShader and that is Mesa's lavapipe: every entry point is lavapipe's, but for those
// that name the device (vendor and device id are SwiftShader's, which Chromium looks for) and those that a Vulkan loader would answer.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef void (*Function)(void);
typedef Function (*GetProcAddr)(void *instance, const char *name);

// VkPhysicalDeviceProperties begins with apiVersion, driverVersion, vendorID, deviceID; in VkPhysicalDeviceProperties2 it comes
// after sType (padded to 8 bytes) and pNext.
enum { VENDOR = 2, DEVICE = 3, PROPERTIES2_AT = 4 };
static const uint32_t SWIFTSHADER_VENDOR = 0x1AE0, SWIFTSHADER_DEVICE = 0xC0DE;

static GetProcAddr lavapipe_proc;
static void (*lavapipe_properties)(void *, uint32_t *);
static void (*lavapipe_properties2)(void *, uint32_t *);

static GetProcAddr lavapipe(void) {
  if (!lavapipe_proc) {
    void *driver = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
    if (driver) lavapipe_proc = (GetProcAddr)dlsym(driver, "vk_icdGetInstanceProcAddr");
  }
  return lavapipe_proc;
}

static void name_as_swiftshader(uint32_t *properties) {
  properties[VENDOR] = SWIFTSHADER_VENDOR;
  properties[DEVICE] = SWIFTSHADER_DEVICE;
}

static void get_properties(void *device, uint32_t *properties) {
  lavapipe_properties(device, properties);
  name_as_swiftshader(properties);
}

static void get_properties2(void *device, uint32_t *properties) {
  lavapipe_properties2(device, properties);
  name_as_swiftshader(properties + PROPERTIES2_AT);
}

static int32_t no_layers(uint32_t *count, void *layers) {
  (void)layers;
  *count = 0;
  return 0;
}

__attribute__((visibility("default"))) Function vkGetInstanceProcAddr(void *instance, const char *name) {
  GetProcAddr proc = lavapipe();
  if (!proc) return 0;
  if (!strcmp(name, "vkGetInstanceProcAddr")) return (Function)vkGetInstanceProcAddr;
  if (!strcmp(name, "vkEnumerateInstanceLayerProperties")) return (Function)no_layers;
  Function found = proc(instance, name);
  if (!found) return 0;
  if (!strcmp(name, "vkGetPhysicalDeviceProperties")) {
    lavapipe_properties = (void (*)(void *, uint32_t *))found;
    return (Function)get_properties;
  }
  if (!strcmp(name, "vkGetPhysicalDeviceProperties2") || !strcmp(name, "vkGetPhysicalDeviceProperties2KHR")) {
    lavapipe_properties2 = (void (*)(void *, uint32_t *))found;
    return (Function)get_properties2;
  }
  return found;
}

__attribute__((visibility("default"))) Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
  return vkGetInstanceProcAddr(instance, name);
}

__attribute__((visibility("default"))) int32_t vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
  if (*version > 5) *version = 5;
  return 0;
}
