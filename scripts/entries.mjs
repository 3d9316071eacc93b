/** Entries of the package that the API reference tells, by what one writes to import them. */
export const ENTRIES = {
  splitkv: 'src/index.ts',
  'splitkv/planning': 'src/planning/index.ts',
  'splitkv/chat': 'src/app/chat/index.ts',
  'splitkv/react': 'src/app/react/index.ts',
  'splitkv/stores': 'src/app/stores/index.ts',
  'splitkv/ai-sdk': 'src/app/ai_sdk/index.ts',
  'splitkv/prompt-api': 'src/app/prompt_api/index.ts',
};
