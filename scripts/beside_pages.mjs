/**
 * What the pages find beside them, by its address: folders of the checkout. The development server and the preview serve them, `npm run
 * site` copies them (of the peers and the library what a page may ask for).
 */
export const BESIDE_PAGES = {
  models: 'models',
  splitkv: 'dist',
  'peers/onnxruntime-web': 'node_modules/onnxruntime-web/dist',
  api: 'site/api',
};
