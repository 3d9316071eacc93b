import { SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import source from './copy_rate.wgsl?raw';

export interface CopyRateProblem {
  /** A multiple of COPY_PIECE. */
  readonly bytes: number;
}

const EACH = 4;
const WORKGROUP = 256;
/** Bytes that a workgroup copies. */
export const COPY_PIECE = 16 * EACH * WORKGROUP;

/** A copy by a kernel, for the rate at which an adapter's kernels can read and write memory. */
export const copyRate = defineKernel({
  name: 'copy_rate',
  bindings: { start: 'read', out: 'read_write' },
  params: { units: 'u32' },
  plan({ bytes }: CopyRateProblem, traits) {
    if (bytes < COPY_PIECE || bytes % COPY_PIECE !== 0) {
      throw new SplitkvError('internal', `copy_rate: ${bytes} bytes; expected a multiple of ${COPY_PIECE}`);
    }
    const workgroup = traits.software ? 32 : WORKGROUP;
    return {
      wgsl: [source],
      constants: { WORKGROUP: workgroup },
      params: { units: bytes / 16 },
      grid: [bytes / (16 * EACH * workgroup), 1, 1],
    };
  },
});
