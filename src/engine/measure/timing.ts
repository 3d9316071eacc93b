import type { Device, Program, ProgramStep } from '../../gpu/index.js';

/** A program without exchanges, and the step that it is run at. */
export interface Timed {
  readonly device: Device;
  readonly program: Program;
  readonly step: ProgramStep;
}

/** A round lasts this long at least, so that submitting and waiting count for little. Short ones are rarely disturbed. */
const MIN_SECONDS = 0.004;
/** No new round begins after this long on the CPU. */
const MAX_SECONDS = 0.15;
/** On a GPU. */
const GPU_MAX_SECONDS = 1;
/** A time is settled when so many rounds in a row found no better one. */
const ROUNDS = 12;
/** Better is less than this share of it. */
const BETTER = 0.98;
const MAX_REPEATS = 512;
/** A GPU that had nothing to do lowers its clock, an H200's to a sixth, and 50 ms of work don't raise it. */
const IDLE_MS = 50;
const WARM_MS = 400;
const lastBusy = new WeakMap<Device, number>();

export function submitPass({ gpu }: Device, encode: (pass: GPUComputePassEncoder) => void): void {
  const encoder = gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  gpu.queue.submit([encoder.finish()]);
}

/** Seconds of one run, with many of them submitted at once: the least of some rounds, as whatever else goes on only adds to it. */
export const timeProgram = (timed: Timed): Promise<number> => timeAtOnce([timed]);

/** As `timeProgram`, with the same number of runs on each at the same time; until the last has ended. */
export async function timeAtOnce(all: readonly Timed[]): Promise<number> {
  const devices = all.map(({ device }) => device);
  const most = devices.every(({ adapter }) => adapter.software) ? MAX_SECONDS : GPU_MAX_SECONDS;
  await runAll(all, 1);
  let repeats = 1;
  const enough = async (): Promise<number> => {
    let seconds = await runAll(all, repeats);
    while (seconds < MIN_SECONDS && repeats < MAX_REPEATS) {
      repeats = Math.min(MAX_REPEATS, Math.ceil(repeats * Math.min(10, Math.max(1.5, (1.2 * MIN_SECONDS) / seconds))));
      seconds = await runAll(all, repeats);
    }
    return seconds;
  };
  let seconds = await enough();
  if (await warmUp(devices, () => runAll(all, repeats))) seconds = await enough();
  const round = async (): Promise<number> => (await runAll(all, repeats)) / repeats;
  return leastOf(devices, seconds / repeats, round, most - seconds);
}

/** Gives GPUs that had nothing to do work until their clocks have risen; false where none needed it. */
export async function warmUp(devices: readonly Device[], run: () => Promise<unknown>): Promise<boolean> {
  const began = performance.now();
  const isIdle = (device: Device): boolean =>
    !device.adapter.software && began - (lastBusy.get(device) ?? -Infinity) > IDLE_MS;
  if (!devices.some(isIdle)) return false;
  while (performance.now() - began < WARM_MS) await run();
  return true;
}

/** The least of a first round and more, until some after the last that was clearly better, or until `most` seconds have passed. */
export async function leastOf(
  devices: readonly Device[],
  first: number,
  round: () => Promise<number>,
  most: number,
): Promise<number> {
  const until = performance.now() + 1000 * most;
  let least = first;
  for (let since = 1; since < ROUNDS && performance.now() < until; since++) {
    const seconds = await round();
    if (seconds < BETTER * least) since = 0;
    least = Math.min(least, seconds);
  }
  for (const device of devices) lastBusy.set(device, performance.now());
  return least;
}

async function runAll(all: readonly Timed[], repeats: number): Promise<number> {
  const started = performance.now();
  for (const { device, program, step } of all) {
    submitPass(device, (pass) => {
      for (let i = 0; i < repeats; i++) program.encode(pass, step);
    });
  }
  await Promise.all(all.map(({ device }) => device.wait(device.gpu.queue.onSubmittedWorkDone())));
  return (performance.now() - started) / 1000;
}
