/** What only caches with tables by head need (compressed prompts, copied heads), loaded when one is wanted. */
export { StageCompression } from '../../model/compression/prompt_compression.js';
export { HeadPages } from './head_pages.js';
export { KeptPromptBlocks } from './kept_prompt_blocks.js';
