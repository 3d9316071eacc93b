// What browser code sees of Node when it is checked alone (tsconfig.browser.json): enough to ask whether it runs there. Files named
// node*.ts are loaded only in Node; which files may import Node's modules is the layer check's business.

declare const process: { readonly versions?: { readonly node?: string }; readonly env: Record<string, string | undefined> };

declare module 'node:*';
declare module '*?raw' {
  const text: string;
  export default text;
}
