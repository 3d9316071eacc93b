// Runs in a process of its own (driver.ts), whose environment names the driver: opens the adapter, prints it as a line of JSON,
// and compiles one shader after the other. What Dawn (stdout) and the driver (stderr) print of each stands between marks.
//   node compile_child.mjs PATH_OF_DAWN [JOBS.json]       JOBS: [{ id, code, bindings: ['read' | 'read_write', ...] }]
import { readFileSync, writeSync } from 'node:fs';

const [dawn, jobsFile] = process.argv.slice(2);
const { create, globals } = await import(dawn);
Object.assign(globalThis, globals);
const gpu = create(['backend=vulkan', 'enable-dawn-features=allow_unsafe_apis,dump_shaders']);
const adapter = await gpu.requestAdapter();
if (!adapter) process.exit(3);
const names = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix', 'subgroup-matrix'];
const limits = {};
for (const name in adapter.limits) if (typeof adapter.limits[name] === 'number') limits[name] = adapter.limits[name];
const { vendor, architecture, device: card, description, subgroupMaxSize } = adapter.info;
const matrices = [...(adapter.info.subgroupMatrixConfigs ?? [])].map(
  ({ componentType, resultComponentType, M, N, K }) => ({
    componentType,
    resultComponentType,
    M,
    N,
    K,
  }),
);
const language = [...gpu.wgslLanguageFeatures];
const features = names.filter((name) => adapter.features.has(name));
if (jobsFile === undefined) {
  writeSync(
    1,
    `@@ADAPTER ${JSON.stringify({ info: { vendor, architecture, device: card, description, subgroupMaxSize }, limits, features, language, matrices })}\n`,
  );
  process.exit(0);
}
const wanted = [
  'maxStorageBufferBindingSize',
  'maxBufferSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxStorageBuffersPerShaderStage',
];
const device = await adapter.requestDevice({
  requiredFeatures: features,
  requiredLimits: Object.fromEntries(wanted.map((name) => [name, limits[name]])),
});
for (const { id, code, bindings } of JSON.parse(readFileSync(jobsFile, 'utf8'))) {
  writeSync(2, `\n@@JOB ${id}\n`);
  const visibility = GPUShaderStage.COMPUTE;
  const entries = bindings.map((access, binding) => ({
    binding,
    visibility,
    buffer: { type: access === 'read' ? 'read-only-storage' : 'storage' },
  }));
  entries.push({ binding: entries.length, visibility, buffer: { type: 'uniform' } });
  device.pushErrorScope('validation');
  const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] });
  // Dawn prints the text before what it makes of it: its first line says whose it is.
  const module = device.createShaderModule({ code: `// @@JOB ${id}\n${code}` });
  const failed = await device.createComputePipelineAsync({ layout, compute: { module } }).then(
    () => undefined,
    (error) => error,
  );
  const error = (await device.popErrorScope()) ?? failed;
  if (error) writeSync(2, `\n@@ERROR ${JSON.stringify(error.message)}\n`);
}
process.exit(0);
