import type { Submission } from '../submissions.js';

/** For tests alone: numbers that no GPU has measured. `speed`: times those of the first. */
export const madeUpSubmission = (name: string, speed: number, day = '2026-01-02'): Submission => ({
  suite: 'gpu',
  environment: {
    date: `${day}T00:00:00.000Z`,
    version: '0.0.0',
    host: 'node',
    node: 'v24',
    chrome: '140',
    os: 'none',
    cpu: 'none',
    cpu_threads: 1,
    memory_bytes: 1,
    adapters: [
      { name, vendor: 'nobody', architecture: '', device: '', description: '', software: false, variants: 'hardware' },
    ],
  },
  results: [
    {
      part: 'correct',
      title: "Every kernel's cases",
      host: 'node',
      seconds: 1,
      rows: ['linear', 'rms_norm'].map((kernel) => ({ kernel, cases: 3, wrong: 0, first: '' })),
    },
    {
      part: 'linear',
      title: 'A row times a matrix',
      host: 'node',
      seconds: 1,
      rows: [640, 4864].flatMap((outputs) =>
        ['as planned', 'lanes', 'each 4'].map((tuning, at) => ({
          weights: 'q4',
          tuning,
          plan: `made up ${at}`,
          outputs,
          inputs: 640,
          rows: 1,
          us: (at === 1 ? 8 : 9) / speed,
          'GB/s': 10 * speed,
          '% of copies': 50,
        })),
      ),
    },
    {
      part: 'bits',
      title: 'Digests of logits',
      host: 'node',
      seconds: 1,
      rows: ['one rank', 'tp'].map((way) => ({ model: 'none', weights: 'q4', way, same: 'yes', sha256: '0' })),
      left_out: 'the rest: out of time (1 s)',
    },
    {
      part: 'peers',
      title: 'Other runtimes',
      host: 'chrome',
      seconds: 1,
      rows: ['splitkv', 'onnxruntime-web'].map((runtime, at) => ({
        task: 'decode',
        runtime,
        device: 'webgpu',
        tokens: 128,
        'tokens/s': (100 * speed) / (at + 1),
        'ours / it': at + 1,
        from: at + 1,
        to: at + 1,
      })),
    },
  ],
});
