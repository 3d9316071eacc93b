import { rmsNorm } from '../../../shaders/norm/rms_norm/index.js';
import { type Device, type Program, Recorder } from '../../gpu/index.js';
import { submitPass, timeProgram } from './timing.js';

export interface Overheads {
  readonly dispatchSeconds: number;
  readonly submitSeconds: number;
  readonly waitSeconds: number;
}

const STEP = { rows: [1], chunks: 1 };
const FEW = 8;
const MANY = 72;
const SUBMITS = 40;
const ROUNDS = 5;

/** Times dispatches of next to nothing, each of which reads what the one before wrote. */
export async function measureOverheads(device: Device): Promise<Overheads> {
  const chainOf = (dispatches: number): Program => {
    const buffers = [0, 1].map((i) => device.createBuffer(`probe row ${i}`, 256));
    const weight = device.createBuffer('probe weight', 256);
    const recorder = new Recorder(device, 'probe dispatches');
    for (let i = 0; i < dispatches; i++) {
      recorder.dispatch(
        rmsNorm,
        { rows: 1, width: 32, stride: 32, eps: 1, residual: false },
        { x: buffers[i % 2], weight, out: buffers[(i + 1) % 2] },
      );
    }
    return recorder.finish();
  };
  const [few, many] = await device.checked('preparing to measure', () => [chainOf(FEW), chainOf(MANY)] as const);
  const fewSeconds = await timeProgram({ device, program: few, step: STEP });
  const manySeconds = await timeProgram({ device, program: many, step: STEP });
  const dispatchSeconds = Math.max(0, (manySeconds - fewSeconds) / (MANY - FEW));
  let [one, all] = [Infinity, Infinity];
  for (let round = 0; round < ROUNDS; round++) {
    one = Math.min(one, await submitTimes(device, few, 1));
    all = Math.min(all, await submitTimes(device, few, SUBMITS));
  }
  const submitSeconds = Math.max(0, (all - one) / (SUBMITS - 1) - FEW * dispatchSeconds);
  return {
    dispatchSeconds,
    submitSeconds,
    waitSeconds: Math.max(0, one - FEW * dispatchSeconds - submitSeconds),
  };
}

/** Seconds of that many submissions in a row, until the last has ended. */
async function submitTimes(device: Device, program: Program, submits: number): Promise<number> {
  const started = performance.now();
  for (let i = 0; i < submits; i++) submitPass(device, (pass) => program.encode(pass, STEP));
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
  return (performance.now() - started) / 1000;
}
