import { packTiles } from '../../../shaders/linear/pack.js';
import { copyRate as copyKernel } from '../../../shaders/probe/copy_rate/index.js';
import { internalError, throwIfAborted } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import { Random } from '../../base/random.js';
import { type AdapterRequest, type Buffer, type Device, openDevice, Recorder } from '../../gpu/index.js';
import { allocateMatrix } from '../../model/weights/matrix.js';
import { recordLinear } from '../../model/layers/linear/linear.js';
import type { LinkMeasure } from '../../placement/index.js';
import { measureLink } from './measure_group.js';
import { MATVEC_SIZE } from './matvec_size.js';
import { measureOverheads, type Overheads } from './overheads.js';
import { leastOf, timeProgram } from './timing.js';

/** What an adapter can do, whatever model runs on it. */
export interface AdapterBasics extends Overheads {
  /** Bytes copied per second; each is read and written. */
  readonly copyBytesPerSecond: number;
  /** One row times an f16 matrix of 2048 x 2048, by the kernel that generated rows use. */
  readonly matvecSeconds: number;
}

export interface AdaptersMeasure {
  /** In the order of the requests. */
  readonly adapters: readonly AdapterBasics[];
  /** Between a device on each of two adapters, or two devices on one; `a` and `b` are places in the list, a <= b. */
  readonly exchanges: readonly (LinkMeasure & { readonly a: number; readonly b: number })[];
}

const COPY_BYTES = 32 * 2 ** 20;
/** Of copies from buffer to buffer, none begins after this long. */
const COPY_SECONDS = 0.5;

/** Measures adapters and the links between them; a second or two each. @throws as `openDevice`; `internal` where one computes nonsense */
export async function measureAdapters(
  requests: readonly AdapterRequest[],
  options: { readonly signal?: AbortSignal; readonly onProgress?: (what: string) => void } = {},
): Promise<AdaptersMeasure> {
  const { signal, onProgress } = options;
  const opened: Device[] = [];
  const open = async (request: AdapterRequest): Promise<Device> => {
    throwIfAborted(signal, 'measuring');
    const device = await openDevice(request);
    opened.push(device);
    return device;
  };
  try {
    const adapters: AdapterBasics[] = [];
    const devices: Device[] = [];
    for (const request of requests) {
      const device = await open(request);
      onProgress?.(`measuring ${device.name}`);
      adapters.push({
        ...(await measureOverheads(device)),
        copyBytesPerSecond: await copyRate(device),
        matvecSeconds: await matvec(device),
      });
      devices.push(device);
    }
    const exchanges: AdaptersMeasure['exchanges'][number][] = [];
    for (const [b, device] of devices.entries()) {
      for (const [a, peer] of devices.slice(0, b + 1).entries()) {
        onProgress?.(`measuring exchanges of ${peer.name} and ${device.name}`);
        const other = a === b ? await open(nth(requests, b)) : peer;
        exchanges.push({ a, b, ...(await measureLink([{ device }, { device: other }], 0)) });
      }
    }
    return { adapters, exchanges };
  } finally {
    for (const device of opened) device.dispose();
  }
}

/** Bytes copied per second: by a kernel, or from buffer to buffer where that is quicker. Some GPUs have a slower engine for the latter. */
export async function copyRate(device: Device, bytes = COPY_BYTES): Promise<number> {
  const buffer = (name: string): Buffer => device.createBuffer(`probe copy ${name}`, bytes);
  const { from, to, program } = await device.checked('preparing to measure', () => {
    const [from, to] = [buffer('from'), buffer('to')];
    const recorder = new Recorder(device, 'probe copy');
    recorder.dispatch(copyKernel, { bytes }, { start: from, out: to });
    return { from, to, program: recorder.finish() };
  });
  const byBuffer = async (): Promise<number> => {
    const started = performance.now();
    const encoder = device.gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(from.gpu, 0, to.gpu, 0, bytes);
    device.gpu.queue.submit([encoder.finish()]);
    await device.wait(device.gpu.queue.onSubmittedWorkDone());
    return (performance.now() - started) / 1000;
  };
  try {
    const byKernel = await timeProgram({ device, program, step: { rows: [1], chunks: 1 } });
    return bytes / Math.min(byKernel, await leastOf([device], await byBuffer(), byBuffer, COPY_SECONDS));
  } finally {
    program.dispose();
    from.dispose();
    to.dispose();
  }
}

async function matvec(device: Device): Promise<number> {
  const size = MATVEC_SIZE;
  const spec = {
    name: 'probe matrix',
    inFeatures: size,
    parts: [{ tensor: '', tensorRows: size, firstRow: 0, rows: size }],
    whole: true,
  };
  const random = new Random(1);
  const x = random.normals(size);
  // The rows of one tile are looked at; the others stay zero.
  const rows = random.normals(32 * size, 1 / Math.sqrt(size));
  const { program, out } = await device.checked('preparing to measure', () => {
    const matrix = allocateMatrix(device, spec, 'f16');
    device.write(nth(matrix.shards, 0).weight, 0, packTiles('f16', rows, 32, size).weight);
    const input = device.createBuffer('probe x', size * 4);
    device.write(input, 0, x);
    const output = device.createBuffer('probe out', size * 4);
    const recorder = new Recorder(device, 'probe matvec');
    const ends = { x: input, xStride: size, out: output, outStride: size };
    recordLinear(recorder, { role: 'generated', rows: 1, normed: undefined }, matrix, ends);
    return { program: recorder.finish(), out: output };
  });
  const seconds = await timeProgram({ device, program, step: { rows: [1], chunks: 1 } });
  const result = new Float32Array(await device.read(out, 0, 32 * 4));
  for (const [row, value] of result.entries()) {
    const expected = x.reduce((sum, factor, k) => sum + factor * rows[row * size + k]!, 0);
    if (Math.abs(value - expected) < 0.02) continue;
    throw internalError(
      `${device.name} multiplies a matrix wrongly (${value} instead of ${expected}); update the GPU driver, or choose another adapter`,
    );
  }
  return seconds;
}
