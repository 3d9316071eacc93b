/**
 * Where Chrome or Chromium is, and how to start it for WebGPU. Plain JavaScript with no dependencies, because the set-up script
 * uses it before any package is installed; the CLI, the end-to-end tests and the benchmarks use it too.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** @returns {string[]} places where browsers are installed on this operating system, best first */
function candidates() {
  const { env, platform } = process;
  if (platform === 'darwin') {
    return ['', env['HOME'] ?? ''].flatMap((home) => [
      `${home}/Applications/Google Chrome.app/Contents/MacOS/Google Chrome`,
      `${home}/Applications/Chromium.app/Contents/MacOS/Chromium`,
      `${home}/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge`,
    ]);
  }
  if (platform === 'win32') {
    const roots = [env['PROGRAMFILES'], env['PROGRAMFILES(X86)'], env['LOCALAPPDATA']].filter(
      (root) => root !== undefined,
    );
    return roots.flatMap((root) => [
      join(root, 'Google/Chrome/Application/chrome.exe'),
      join(root, 'Chromium/Application/chrome.exe'),
      join(root, 'Microsoft/Edge/Application/msedge.exe'),
    ]);
  }
  return [
    '/usr/bin/chromium',
    '/usr/bin/chromium-browser',
    '/usr/bin/google-chrome',
    '/usr/bin/google-chrome-stable',
    '/opt/google/chrome/chrome',
    '/usr/bin/microsoft-edge',
    '/snap/bin/chromium',
  ];
}

/** @returns {string | undefined} the Chromium that Playwright downloaded, if it did */
function playwrightChromium() {
  try {
    const { chromium } = createRequire(import.meta.url)('playwright-core');
    const path = chromium.executablePath();
    return path && existsSync(path) ? path : undefined;
  } catch {
    return undefined; // playwright-core isn't installed
  }
}

/**
 * The browser to use: CHROME_PATH, else Playwright's own Chromium, else one installed on the system.
 * @returns {string | undefined}
 */
export function findChrome() {
  const chosen = process.env['CHROME_PATH'];
  if (chosen) {
    if (!existsSync(chosen))
      throw new Error(`CHROME_PATH=${chosen}: no such file; unset it or name a Chrome or Chromium binary`);
    return chosen;
  }
  return playwrightChromium() ?? candidates().find((path) => existsSync(path));
}

/**
 * Command line flags for a browser with WebGPU.
 * @param {'hardware' | 'software'} adapter 'software' runs WebGPU on the CPU (SwiftShader)
 * @returns {string[]}
 */
export function chromeFlags(adapter) {
  const flags = [
    '--enable-unsafe-webgpu',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--no-first-run',
    '--disable-quic',
  ];
  if (adapter === 'software') flags.push('--use-webgpu-adapter=swiftshader');
  else if (process.platform === 'linux') flags.push('--enable-features=Vulkan', '--ignore-gpu-blocklist');
  if (lacksSandbox()) flags.push('--no-sandbox');
  return flags;
}

/**
 * Chromium's sandbox can't start as root, nor Chromium with it.
 * @returns {boolean}
 */
export const lacksSandbox = () => process.getuid?.() === 0;

/**
 * False when this machine surely has no GPU that a browser could use, so that trying one can be skipped.
 * @returns {boolean}
 */
export function mayHaveGpu() {
  if (process.platform !== 'linux') return true;
  return existsSync('/dev/dri') || existsSync('/dev/nvidia0') || existsSync('/dev/dxg');
}
