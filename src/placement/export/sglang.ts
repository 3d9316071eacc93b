import { cutsWhole, degree, type Engine, flags, layerPartition, tensorGroup } from './engine.js';

/** `python -m sglang.launch_server`. Its tensor-parallel size counts all GPUs of a stage, those of all data-parallel groups of attention. */
export const sglang: Engine = (request) => {
  const { model, contextLength, sequences, degrees, latent, waits } = request;
  const { pipeline, sequence, data, spreadsExperts } = degrees;
  const group = tensorGroup(request);
  let context = latent ? Math.min(sequence, group) : 1;
  while (group % context > 0) context--;
  const partition = layerPartition(request);
  const differences = cutsWhole(request);
  if (context < sequence) {
    differences.push(
      `The plan splits a sequence's cache over ${sequence} ranks; SGLang ` +
        (latent ? `over ${context}.` : 'does so with a latent (MLA) only. Here it is cut by heads.'),
    );
  }
  if (context > 1) differences.push('Tokens go to GPUs one at a time in turns, in the plan 256 at a time.');
  const delays = data > 1 && waits.enable_balance;
  if (delays) {
    differences.push(
      "Prompts that wait for those of other ranks: SGLang's own rule (--enable-prefill-delayer); batching_wait_iters has no equivalent.",
    );
  }
  return {
    devices: group * data * pipeline,
    command: [
      'python',
      '-m',
      'sglang.launch_server',
      '--model-path',
      model,
      ...flags({
        'tp-size': degree(group * data),
        'pp-size': degree(pipeline),
        'dp-size': degree(data),
        'enable-dp-attention': data > 1 || undefined,
        'enable-dp-lm-head': data > 1 || undefined,
        'dcp-size': degree(context),
        'ep-size': spreadsExperts ? degree(group * data) : undefined,
        'enable-prefill-delayer': delays || undefined,
        'prefill-delayer-max-delay-passes': delays ? waits.timeout_iters : undefined,
        'context-length': contextLength,
        'max-running-requests': sequences,
      }),
    ],
    environment: partition ? { SGLANG_PP_LAYER_PARTITION: partition.join() } : {},
    differences,
  };
};
