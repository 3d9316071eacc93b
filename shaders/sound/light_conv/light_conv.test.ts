import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';

await testKernel(suite);
