import vue from '@vitejs/plugin-vue';
import { defineConfig } from 'vite';

// Vue would otherwise look for a component of this name.
const isCustomElement = (tag) => tag === 'splitkv-chat';

export default defineConfig({ plugins: [vue({ template: { compilerOptions: { isCustomElement } } })] });
