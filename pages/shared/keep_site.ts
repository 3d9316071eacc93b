import { keepOffline } from '../../src/app/offline/index.js';

const keepAll = async (): Promise<void> => {
  document.documentElement.dataset['kept'] = String(await keepOffline('sw.js'));
};

/** The page opens without a network after the first visit. What browsers or their settings don't allow is left out. */
export function keepSite(): void {
  if (!import.meta.env.PROD) return;
  // After what the page itself loads.
  const keep = (): void => void setTimeout(() => void keepAll().catch(() => {}), 1000);
  if (document.readyState === 'complete') keep();
  else addEventListener('load', keep);
}
