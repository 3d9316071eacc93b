/** Rows and columns of the matrix that adapters are measured with. */
export const MATVEC_SIZE = 2048;
