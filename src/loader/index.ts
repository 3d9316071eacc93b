export type { Dtype } from './dtype.js';
export { fileListSource } from './file_list_source.js';
export { readSafetensorsHeader, type SafetensorsHeader, type TensorEntry } from './safetensors_header.js';
export { type LoadProgress, type OnProgress, readJson, readText, type Source } from './source.js';
export type { RowPiece } from './stream_rows.js';
export { expectTensor, findTensor, readTensorIndex, type TensorIndex } from './tensor_index.js';
export { matrixShape, type ReadRowsOptions, type StreamRowsOptions, TensorReader } from './tensor_reader.js';
