/* A stand-in for libcuda, libnvidia-ml and libnvcuvid: it answers what the environment tells it to.
   CUDA_FAKE_INIT, _VERSION, _COUNT, _MAJOR, _MINOR, _NAME, _NVML, _HANG (a function's name), _CRASH (likewise). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void enter(const char *function) {
    const char *hang = getenv("CUDA_FAKE_HANG"), *crash = getenv("CUDA_FAKE_CRASH");
    if (hang && !strcmp(hang, function)) for (;;) pause();
    if (crash && !strcmp(crash, function)) raise(SIGSEGV);
}

int cuDriverGetVersion(int *version) { enter("cuDriverGetVersion"); *version = number("CUDA_FAKE_VERSION", 12060); return 0; }
int cuInit(unsigned flags) { (void)flags; enter("cuInit"); return number("CUDA_FAKE_INIT", 0); }
int cuDeviceGetCount(int *count) { *count = number("CUDA_FAKE_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    const char *text = getenv("CUDA_FAKE_NAME");
    (void)device;
    strncpy(name, text ? text : "NVIDIA H200", size);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)140 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? number("CUDA_FAKE_MAJOR", 9) : number("CUDA_FAKE_MINOR", 0);
    return 0;
}
int nvmlInit_v2(void) { enter("nvmlInit"); return number("CUDA_FAKE_NVML", 0); }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "560.35.03", size); return 0; }
