import { cutsWhole, degree, type Engine, flags, layerPartition, perGroup, tensorGroup } from './engine.js';

/** `vllm serve`. Decode context parallelism reuses the GPUs of a tensor-parallel group, where they would hold copies of kv heads. */
export const vllm: Engine = (request) => {
  const { model, contextLength, degrees, kvHeads, latent, waits } = request;
  const { pipeline, sequence, data, cutsMlp, spreadsExperts } = degrees;
  const tensor = tensorGroup(request);
  const copies = Math.floor(tensor / (latent ? 1 : kvHeads));
  let context = Math.max(1, Math.min(sequence, copies));
  while (tensor % context > 0) context--;
  const partition = layerPartition(request);
  const differences = cutsWhole(request);
  if (context < sequence) {
    differences.push(
      `The plan splits a sequence's cache over ${sequence} ranks; vLLM splits it over ${context}, as it does so only where GPUs would ` +
        'hold copies of a kv head (tensor-parallel size over kv heads). The rest is cut by heads.',
    );
  }
  if (context > 1) {
    differences.push(
      'Tokens go to GPUs one at a time in turns (--cp-kv-cache-interleave-size), in the plan 256 at a time.',
    );
  }
  if (data > 1) {
    if (cutsMlp) {
      differences.push(
        'MLP columns are cut over all ranks of the plan; vLLM keeps dense MLPs whole in each data-parallel group.',
      );
    }
    if (waits.enable_balance) {
      differences.push('Prompts that wait for those of other ranks (attention_dp_config) have no equivalent.');
    }
  }
  return {
    devices: tensor * data * pipeline,
    command: [
      'vllm',
      'serve',
      model,
      ...flags({
        'tensor-parallel-size': degree(tensor),
        'pipeline-parallel-size': degree(pipeline),
        'data-parallel-size': degree(data),
        'decode-context-parallel-size': degree(context),
        'enable-expert-parallel': spreadsExperts || undefined,
        'max-model-len': contextLength,
        'max-num-seqs': perGroup(request),
      }),
    ],
    environment: partition ? { VLLM_PP_LAYER_PARTITION: partition.join() } : {},
    differences,
  };
};
