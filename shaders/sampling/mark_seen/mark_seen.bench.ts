import { benchKernel } from '../../../src/gpu/testing/bench_kernel.js';
import { suite } from './cases.js';

await benchKernel(suite);
