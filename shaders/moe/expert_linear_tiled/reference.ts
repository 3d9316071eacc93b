/** Float64 reference of both expert_linear kernels. */
export { expertReference } from '../reference.js';
