import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import type { Page } from '@playwright/test';

/** Opens a page that has nothing but the built library under lib/, as its own files. */
export async function openLibraryPage(page: Page): Promise<void> {
  const files = readdirSync('dist').filter((name) => name.endsWith('.js'));
  await page.route('**/lib/*.js', (route) => {
    const name = basename(new URL(route.request().url()).pathname);
    return files.includes(name)
      ? route.fulfill({ contentType: 'text/javascript', path: `dist/${name}` })
      : route.fulfill({ status: 404 });
  });
  await page.route('**/plain.html', (route) =>
    route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>plain</title>' }),
  );
  await page.goto('/plain.html');
}
