import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

const ICD = 'vk_swiftshader_icd.json';
const INSTALLED = ['/usr/lib/chromium', '/opt/google/chrome', '/usr/lib/chromium-browser'];

/**
 * Chromium's software Vulkan driver: beside the browser that CHROME_PATH names, where systems install one, or in Playwright's
 * cache. Linux only: elsewhere Dawn doesn't use Vulkan.
 * @param installed folders of browsers that the system installed
 * @returns the path of its ICD file
 */
export function swiftshaderIcd(installed: readonly string[] = INSTALLED): string | undefined {
  if (process.platform !== 'linux') return undefined;
  const chosen = process.env['CHROME_PATH'];
  const beside = chosen && existsSync(chosen) ? [dirname(realpathSync(chosen))] : [];
  return [...beside, ...installed, ...playwrightFolders()]
    .map((folder) => join(folder, ICD))
    .find((path) => existsSync(path));
}

/** Folders of the browsers that Playwright downloaded, newest revision first. */
function playwrightFolders(): string[] {
  const chosen = process.env['PLAYWRIGHT_BROWSERS_PATH'];
  const cache =
    chosen && chosen !== '0'
      ? chosen
      : join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'ms-playwright');
  if (!existsSync(cache)) return [];
  const revision = (name: string): number => Number(/\d+$/.exec(name)?.[0] ?? 0);
  return readdirSync(cache, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('chromium'))
    .map(({ name }) => name)
    .sort((a, b) => revision(b) - revision(a))
    .flatMap((name) => readdirSync(join(cache, name), { withFileTypes: true }))
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
}
