/** Float64 reference of both linear kernels. */
export { linearReference as reference } from '../reference.js';
