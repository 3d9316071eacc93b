import { submitPass } from '../../measure/timing.js';
import { alignUp } from '../../../base/math.js';
import { Random } from '../../../base/random.js';
import { type Device, Recorder } from '../../../gpu/index.js';
import type { RankStep } from '../../../model/layers/world.js';
import { Sampler } from './sampling.js';
import { hasControls } from './sampling_options.js';
import { samplingMode } from './slot_needs.js';

/** Several tiles of every kernel, the last one short. */
const MOST_TOKENS = 9000;
const STEPS = 3;

/** One of each way in which tokens are sampled. */
const REQUESTS = [
  { seed: 1, repetitionPenalty: 1.2 },
  { seed: 2, temperature: 1, topK: 40, topP: 0.9 },
  { seed: 3, temperature: 1, topP: 0.95, repetitionPenalty: 1.2 },
  { seed: 4, temperature: 0.8, minP: 0.01, frequencyPenalty: 0.5, presencePenalty: 0.2 },
] as const;

/** Tokens that each kind of request samples from random logits, by one rank's own programs; equal wherever kernels compute rightly. */
export async function sampledTokens(device: Device, vocabSize: number): Promise<number[]> {
  const vocab = Math.min(vocabSize, MOST_TOKENS);
  const logitsStride = alignUp(vocab, 32);
  const tokens = device.createBuffer('tokens', 4);
  const rowInfo = device.createBuffer('row_info', 8);
  const sampled: number[] = [];
  for (const request of REQUESTS) {
    const shape = { slots: 1, vocabSize: vocab, logitsStride, ring: STEPS, slices: [[0, vocab] as const], part: 0 };
    const sampler = new Sampler(device, { ...shape, tokens, rowInfo });
    const controlled = hasControls(request);
    if (controlled) await sampler.prepareControls();
    const program = await device.checked('comparing sampling', () => {
      const recorder = new Recorder<RankStep>(device, 'sampling');
      const mode = sampler.modeFor(samplingMode(request));
      const logits = controlled ? sampler.recordControls(recorder) : sampler.logits;
      sampler.recordCandidates(recorder, mode, logits);
      sampler.recordSample(recorder, mode, logits);
      return recorder.finish();
    });
    const prompt = Uint32Array.from({ length: 20 }, (_, i) => (i * 37) % vocab);
    sampler.start(0, request, prompt, prompt.length - 1, true);
    device.write(rowInfo, 0, Uint32Array.of(prompt.length - 1, 0));
    device.write(sampler.logits, 0, new Random(request.seed).normals(logitsStride, 3));
    await device.checked('comparing sampling', () =>
      submitPass(device, (pass) => {
        for (let step = 0; step < STEPS; step++) program.encode(pass, { rows: [1], chunks: 1 } as RankStep);
      }),
    );
    sampled.push(...new Uint32Array(await device.read(sampler.nextIds().ids)));
  }
  return sampled;
}
