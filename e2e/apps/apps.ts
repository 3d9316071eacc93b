import { STORY } from '../../models/example.js';

/** How an app is run: `dist` is a folder that any web server serves, `server` a command that serves it at `PORT`, else an extension. */
export interface App {
  readonly dependencies?: Readonly<Record<string, string>>;
  /** Scripts of a package as `npm run` finds them; none: nothing is built. */
  readonly build?: string;
  readonly serve: { readonly folder: string } | { readonly command: string } | { readonly extension: string };
  readonly files: Readonly<Record<string, string>>;
  /** The folder that the app serves as it is. */
  readonly public?: string;
  /** Files of the package are copied there, as a page without a bundler wants them. */
  readonly copies?: string;
}

// What the generators of these tools write (npm create vite, npm create next-app, the getting started pages of the others), with a chat in
// it. Configurations and styles are theirs: nothing in them is for splitkv.

const about = JSON.stringify(STORY);

/** What the styles of Vite's templates say: `id` is where the app is mounted. The rest of them is for what their first page shows. */
const viteStyle = (id: string): string => `:root {
  font-family: system-ui, Avenir, Helvetica, Arial, sans-serif;
  line-height: 1.5;
  font-weight: 400;

  color-scheme: light dark;
  color: rgba(255, 255, 255, 0.87);
  background-color: #242424;

  font-synthesis: none;
  text-rendering: optimizeLegibility;
  -webkit-font-smoothing: antialiased;
  -moz-osx-font-smoothing: grayscale;
}

a {
  font-weight: 500;
  color: #646cff;
  text-decoration: inherit;
}
a:hover {
  color: #535bf2;
}

body {
  margin: 0;
  display: flex;
  place-items: center;
  min-width: 320px;
  min-height: 100vh;
}

h1 {
  font-size: 3.2em;
  line-height: 1.1;
}

#${id} {
  max-width: 1280px;
  margin: 0 auto;
  padding: 2rem;
  text-align: center;
}

button {
  border-radius: 8px;
  border: 1px solid transparent;
  padding: 0.6em 1.2em;
  font-size: 1em;
  font-weight: 500;
  font-family: inherit;
  background-color: #1a1a1a;
  cursor: pointer;
  transition: border-color 0.25s;
}
button:focus,
button:focus-visible {
  outline: 4px auto -webkit-focus-ring-color;
}

@media (prefers-color-scheme: light) {
  :root {
    color: #213547;
    background-color: #ffffff;
  }
  button {
    background-color: #f9f9f9;
  }
}
`;

/** create-next-app's globals.css, and what its page's own style says. */
const NEXT_STYLE = `:root {
  --background: #ffffff;
  --foreground: #171717;
}

@media (prefers-color-scheme: dark) {
  :root {
    --background: #0a0a0a;
    --foreground: #ededed;
  }
}

html,
body {
  max-width: 100vw;
  overflow-x: hidden;
}

body {
  color: var(--foreground);
  background: var(--background);
  font-family: Arial, Helvetica, sans-serif;
  -webkit-font-smoothing: antialiased;
  -moz-osx-font-smoothing: grayscale;
}

* {
  box-sizing: border-box;
  padding: 0;
  margin: 0;
}

a {
  color: inherit;
  text-decoration: none;
}

@media (prefers-color-scheme: dark) {
  html {
    color-scheme: dark;
  }
}

.page {
  display: grid;
  grid-template-rows: 20px 1fr 20px;
  align-items: center;
  justify-items: center;
  min-height: 100svh;
  padding: 80px;
  gap: 64px;
}

.page main {
  display: flex;
  flex-direction: column;
  gap: 32px;
  grid-row-start: 2;
}
`;

const html = (script: string, id = 'app'): string => `<!doctype html>
<html lang="en">
  <head><meta charset="UTF-8" /><meta name="viewport" content="width=device-width, initial-scale=1.0" /><title>app</title></head>
  <body><div id="${id}"></div>${script}</body>
</html>`;
const module = (src: string, id?: string): string => html(`<script type="module" src="${src}"></script>`, id);

const plainMain = `import 'splitkv/chat';
import { SplitkvError } from 'splitkv';
const chat = document.createElement('splitkv-chat');
Object.assign(chat, {
  model: 'models/tiny-gqa/', autostart: true, noSelfTest: true, maxTokens: 20, about: ${about},
  workers: location.search === '?workers',
});
if (!(new SplitkvError('usage', '') instanceof Error)) throw new Error('two kinds of errors');
document.querySelector('#app').append(chat);
`;

const vite = (version: string): Omit<App, 'serve'> => ({
  dependencies: { vite: version },
  build: 'vite build',
  public: 'public',
  files: {
    'index.html': module('/src/main.js'),
    'src/style.css': viteStyle('app'),
    'src/main.js': `import './style.css'\n${plainMain}`,
  },
});
const dev = (command: string): App['serve'] => ({ command: `${command} --host 127.0.0.1 --strictPort --port` });
const built: App['serve'] = { folder: 'dist' };

const react = (version: string, viteVersion: string, plugin: string): Omit<App, 'serve'> => ({
  dependencies: { react: version, 'react-dom': version, vite: viteVersion, '@vitejs/plugin-react': plugin },
  build: 'vite build',
  public: 'public',
  files: {
    'vite.config.js': `import { defineConfig } from 'vite'
import react from '@vitejs/plugin-react'

// https://vite.dev/config/
export default defineConfig({
  plugins: [react()],
})
`,
    'index.html': module('/src/main.jsx', 'root'),
    'src/index.css': viteStyle('root'),
    'src/main.jsx': `import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import './index.css'
import App from './App.jsx'

createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>)
`,
    // The tag itself, and the component.
    'src/App.jsx': `import { useRef, useState } from 'react'
import 'splitkv/chat'
import { SplitkvChat } from 'splitkv/react'

const about = ${about}

export default function App() {
  const [told, tell] = useState('')
  const chat = useRef(null)
  if (location.search !== '?workers') {
    return <splitkv-chat model="models/tiny-gqa/" autostart="" no-self-test="" max-tokens={20} about={about} />
  }
  return <>
    <SplitkvChat ref={chat} model="models/tiny-gqa/" autostart noSelfTest maxTokens={20} about={about} workers
      onReady={({ detail }) => { if (chat.current.engine !== detail.model) throw new Error('ref is not the element') }}
      onAnswer={({ detail }) => tell(detail.text)} />
    <output>{told}</output>
  </>
}
`,
  },
});

const vue: Omit<App, 'serve'> = {
  dependencies: { vue: '^3.5.0', vite: '^8.0.0', '@vitejs/plugin-vue': '^6.0.0' },
  build: 'vite build',
  public: 'public',
  files: {
    'vite.config.js': `import { defineConfig } from 'vite'
import vue from '@vitejs/plugin-vue'

// https://vite.dev/config/
export default defineConfig({
  plugins: [vue()],
})
`,
    'index.html': module('/src/main.js'),
    'src/style.css': viteStyle('app'),
    'src/main.js': `import { createApp } from 'vue'
import './style.css'
import App from './App.vue'

createApp(App).mount('#app')
`,
    'src/App.vue': `<script setup>
import { ref } from 'vue'
import 'splitkv/chat'
const about = ${about}
const workers = location.search === '?workers'
const told = ref('')
</script>

<template>
  <splitkv-chat model="models/tiny-gqa/" autostart :no-self-test="true" :max-tokens="20" :about="about" :workers="workers"
    @splitkv-answer="told = $event.detail.text" />
  <output>{{ told }}</output>
</template>
`,
  },
};

const svelte: Omit<App, 'serve'> = {
  dependencies: { svelte: '^5.0.0', vite: '^8.0.0', '@sveltejs/vite-plugin-svelte': '^7.0.0' },
  build: 'vite build',
  public: 'public',
  files: {
    'vite.config.js': `import { defineConfig } from 'vite'
import { svelte } from '@sveltejs/vite-plugin-svelte'

// https://vite.dev/config/
export default defineConfig({
  plugins: [svelte()],
})
`,
    'index.html': module('/src/main.js'),
    'src/app.css': viteStyle('app'),
    'src/main.js': `import { mount } from 'svelte'
import './app.css'
import App from './App.svelte'

export default mount(App, { target: document.getElementById('app') })
`,
    'src/App.svelte': `<script>
  import 'splitkv/chat'
  const about = ${about}
  const workers = location.search === '?workers'
  let told = $state('')
</script>

<splitkv-chat model="models/tiny-gqa/" autostart no-self-test max-tokens={20} {about} {workers}
  onsplitkv-answer={(event) => (told = event.detail.text)}></splitkv-chat>
<output>{told}</output>
`,
  },
};

const next: App = {
  dependencies: { next: '^16.0.0', react: '^19.0.0', 'react-dom': '^19.0.0' },
  build: 'next build',
  serve: { command: 'next start --hostname 127.0.0.1 --port' },
  public: 'public',
  files: {
    'next.config.mjs': `/** @type {import('next').NextConfig} */
const nextConfig = {};

export default nextConfig;
`,
    'app/globals.css': NEXT_STYLE,
    'app/layout.js': `import './globals.css';

export const metadata = { title: 'app' };

export default function RootLayout({ children }) {
  return <html lang="en"><body>{children}</body></html>;
}
`,
    'app/page.js': `import Chat from './chat';

export default function Home() {
  return <div className="page"><main><Chat /></main></div>;
}
`,
    'app/chat.js': `'use client';
import { useEffect, useState } from 'react';
import { SplitkvChat } from 'splitkv/react';

export default function Chat() {
  const [workers, setWorkers] = useState(undefined);
  const [told, tell] = useState('');
  useEffect(() => setWorkers(location.search === '?workers'), []);
  return <>
    <SplitkvChat model={workers === undefined ? undefined : '/models/tiny-gqa/'} autostart noSelfTest maxTokens={20} about={${about}}
      workers={workers} onAnswer={({ detail }) => tell(detail.text)} />
    <output>{told}</output>
  </>;
}
`,
  },
};

const bundled = (dependencies: Record<string, string>, build: string, script: string, files = {}): App => ({
  dependencies,
  build,
  serve: built,
  public: 'dist',
  files: { 'dist/index.html': html(script), 'src/index.js': plainMain, ...files },
});

/** Each app by its name, those that take the longest last. */
export const APPS: Readonly<Record<string, App>> = {
  'import-map': {
    serve: { folder: '.' },
    public: '.',
    files: {
      'index.html': html(`<script type="importmap">
        {"imports": {"splitkv": "./node_modules/splitkv/dist/splitkv.js", "splitkv/chat": "./node_modules/splitkv/dist/splitkv-chat.js"}}
      </script>
      <script type="module">${plainMain}</script>`),
    },
  },
  esbuild: bundled(
    { esbuild: '^0.28.0' },
    'esbuild src/index.js --bundle --outfile=dist/main.js',
    '<script src="main.js"></script>',
  ),
  'esbuild-split': bundled(
    { esbuild: '^0.28.0' },
    'esbuild src/index.js --bundle --format=esm --splitting --minify --outdir=dist',
    '<script type="module" src="index.js"></script>',
  ),
  rollup: bundled(
    { rollup: '^4.0.0', '@rollup/plugin-node-resolve': '^16.0.0' },
    'rollup -c',
    '<script type="module" src="index.js"></script>',
    {
      'rollup.config.mjs': `import resolve from '@rollup/plugin-node-resolve';

export default {
  input: 'src/index.js',
  output: { dir: 'dist', format: 'es' },
  plugins: [resolve({ browser: true })],
};
`,
    },
  ),
  webpack: bundled(
    { webpack: '^5.0.0', 'webpack-cli': '^7.0.0' },
    'webpack --mode production',
    '<script src="main.js"></script>',
  ),
  parcel: {
    dependencies: { parcel: '^2.0.0' },
    build: 'parcel build index.html',
    serve: built,
    public: 'dist',
    files: { 'index.html': module('src/index.js'), 'src/index.js': plainMain },
  },
  'vite7-react19': { ...react('^19.0.0', '^7.0.0', '^5.0.0'), serve: built },
  'vite7-react19-dev': { ...react('^19.0.0', '^7.0.0', '^5.0.0'), serve: dev('vite') },
  'vite6-react18': { ...react('^18.0.0', '^6.0.0', '^4.0.0'), serve: built },
  vite6: { ...vite('^6.0.0'), serve: built },
  'vite6-dev': { ...vite('^6.0.0'), serve: dev('vite') },
  vite7: { ...vite('^7.0.0'), serve: built },
  'vite7-dev': { ...vite('^7.0.0'), serve: dev('vite') },
  vite8: { ...vite('^8.0.0'), serve: built },
  'vite8-dev': { ...vite('^8.0.0'), serve: dev('vite') },
  vue: { ...vue, serve: built },
  'vue-dev': { ...vue, serve: dev('vite') },
  svelte: { ...svelte, serve: built },
  'svelte-dev': { ...svelte, serve: dev('vite') },
  extension: {
    serve: { extension: '.' },
    public: '.',
    copies: 'splitkv',
    files: {
      'manifest.json': JSON.stringify({
        manifest_version: 3,
        name: 'app',
        version: '1',
        action: { default_popup: 'index.html' },
      }),
      'index.html': module('main.js'),
      'main.js': plainMain
        .replace("'splitkv/chat'", "'./splitkv/splitkv-chat.js'")
        .replace("'splitkv'", "'./splitkv/splitkv.js'"),
    },
  },
  next,
};
