/**
 * Room: single operators against ONNX Runtime's: attention and a q4 matrix, several in a chain. kernel_task.ts is what
 * both sides do.
 */

import { SplitkvError } from '../../../src/base/errors.js';
import { median } from '../../../src/base/stats.js';
import type { Device } from '../../../src/gpu/index.js';
import type { SuiteHooks } from '../../document.js';
import { interleave } from '../../interleave.js';
import { pairedRatio } from '../../statistics.js';
import { attentionTask } from './attention_task.js';
import { checkTask, type KernelTask, timedContenders } from './kernel_task.js';
import { linearTask } from './linear_task.js';
import type { Ort } from '../ort.js';
import type { LeftOut } from '../peer_model.js';
import type { PeerResult } from '../peer_result.js';

/** Attention by the lengths given, and a q4 matrix: our kernels against ONNX Runtime's operators. A task that they differ in isn't timed: why is added to `leftOut`. */
export async function raceKernels(
  device: Device,
  ort: Ort,
  { lengths, size, runs }: { readonly lengths: readonly number[]; readonly size: number; readonly runs: number },
  leftOut: LeftOut[],
  hooks: SuiteHooks,
): Promise<PeerResult[]> {
  const results: PeerResult[] = [];
  const race = async (task: KernelTask): Promise<void> => {
    try {
      hooks.onProgress(`checking ${task.name}`);
      const errors = await checkTask(task);
      const samples = await interleave(await timedContenders(task), runs, hooks);
      for (const [index, { runtime }] of task.contenders.entries()) {
        results.push({
          task: task.name,
          ...(task.tokens !== undefined && { tokens: task.tokens }),
          runtime,
          device: 'WebGPU',
          unit: 'us',
          value: median(samples[index]!),
          speed_ratio: pairedRatio(samples[index]!, samples[0]!),
          error: errors[index]!,
          samples: samples[index]!,
        });
      }
    } catch (error) {
      if (!(error instanceof SplitkvError) || error.code !== 'internal') throw error;
      const { name, tokens } = task;
      leftOut.push({
        runtime: `onnxruntime-web: ${name}`,
        ...(tokens !== undefined && { tokens }),
        why: error.message,
      });
    } finally {
      await task.dispose();
    }
  };
  for (const length of lengths) await race(await attentionTask(device, ort, length));
  await race(await linearTask(device, ort, size));
  return results;
}
