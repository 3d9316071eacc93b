/**
 * Room: from bytes somewhere to rows of tensors: safetensors and GGUF, read by ranges. `sources` are the places that
 * bytes come from, `cache` what a browser keeps, `hub` models by name. Read source.ts next, then tensor_reader.ts.
 */

export type { CachedModel } from './cache/cache_list.js';
export { type BlockType, isBlockType } from './dtype.js';
export { fileListSource } from './sources/file_list_source.js';
export { entryOf, findGguf, findMmproj, type GgufFile, isGgufName, openGguf } from './gguf/file.js';
export type { GgufTensor } from './gguf/header.js';
export type { CatalogModel } from './hub/catalog.js';
export type { NetworkOptions } from './hub/hub_options.js';
export { parseIntegrity } from './sources/integrity.js';
export { cachedSource, deleteCached, findCached, listCached, type OpenOptions, openSource } from './open_source.js';
export { around, readJson, readText, type Source, TOKENIZER_CONFIG_LIMITS, TOKENIZER_LIMITS } from './source.js';
export { ADAPTER_FILES, readTensorIndex, type TensorEntry, type TensorIndex } from './tensor_index.js';
export { scaledView } from './scaled_view.js';
export { matrixShape, type RowPiece, storedBlocks, TensorReader } from './tensor_reader.js';
export {
  absorbedView,
  blocksView,
  columnsView,
  orderedView,
  rowsView,
  summedView,
  transposedView,
  vectorView,
} from './views.js';
