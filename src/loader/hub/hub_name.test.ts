import { describe, expect, it } from 'vitest';
import { hubForm } from './hub_options.js';
import { hubNameOfUrl, hubText, parseHubName, resolveUrl } from './hub_name.js';

describe('what a name looks like', () => {
  it.each([
    ['hf:ORG/NAME', 'hub'],
    ['HF:gpt2', 'hub'],
    ['hf.co/ORG/NAME:Q4_K_M', 'hub'],
    ['huggingface.co/ORG/NAME', 'hub'],
    ['HuggingFaceTB/SmolLM2-360M-Instruct', 'either'],
    ['models/my-model', 'either'],
    ['Org/Name-GGUF/model.gguf', 'either'],
    ['Org/Name-GGUF/Q4_K_M/model-00001-of-00002.gguf', 'either'],
    ['Org/Name@main', 'pinned'],
    ['Org/Name@refs/pr/1', 'pinned'],
    ['Org/Name:Q4_K_M', 'pinned'],
    ['Org/Name@v1.0/model.gguf', 'pinned'],
    ['smollm2-360m-instruct', 'word'],
    // Paths and URLs.
    ['models/my-model/', undefined],
    ['./models/my-model', undefined],
    ['../my-model', undefined],
    ['/models/my-model', undefined],
    ['~/models/my-model', undefined],
    ['models/deep/my-model', undefined],
    ['models/model.gguf', undefined],
    ['model.gguf', undefined],
    ['model/?signature=1', undefined],
    ['https://example.com/a/b', undefined],
    ['C:\\models\\a', undefined],
    ['C:/models/a', undefined],
    ['a b/c', undefined],
  ])('%s', (text, form) => expect(hubForm(text)).toBe(form));
});

describe('names of the Hub', () => {
  it.each([
    ['hf:Org/Name', { repo: 'Org/Name', revision: 'main' }],
    ['hf://Org/Name', { repo: 'Org/Name', revision: 'main' }],
    ['hf:gpt2', { repo: 'gpt2', revision: 'main' }],
    ['hf.co/Org/Name:Q8_0', { repo: 'Org/Name', revision: 'main', quant: 'Q8_0' }],
    ['huggingface.co/Org/Name', { repo: 'Org/Name', revision: 'main' }],
    ['hf:Org/Name/', { repo: 'Org/Name', revision: 'main' }],
    ['Org/Name@v1.0', { repo: 'Org/Name', revision: 'v1.0' }],
    ['Org/Name@refs/pr/12', { repo: 'Org/Name', revision: 'refs/pr/12' }],
    ['Org/Name@feature/x', { repo: 'Org/Name', revision: 'feature/x' }],
    ['Org/Name/a.gguf', { repo: 'Org/Name', revision: 'main', file: 'a.gguf' }],
    ['Org/Name/q4/a.gguf', { repo: 'Org/Name', revision: 'main', file: 'q4/a.gguf' }],
    ['Org/Name@v1/q4/a.gguf', { repo: 'Org/Name', revision: 'v1', file: 'q4/a.gguf' }],
    ['Org/Name@refs/pr/1/a.gguf', { repo: 'Org/Name', revision: 'refs/pr/1', file: 'a.gguf' }],
    ['Org/Name@feature%2Fx/a.gguf', { repo: 'Org/Name', revision: 'feature/x', file: 'a.gguf' }],
    ['hf:Org/Name:q4_k_m', { repo: 'Org/Name', revision: 'main', quant: 'q4_k_m' }],
    ['Org/Name:latest', { repo: 'Org/Name', revision: 'main' }],
    ['Org/Name:Q8_0@v2', { repo: 'Org/Name', revision: 'v2', quant: 'Q8_0' }],
  ])('%s', (text, expected) => {
    const name = parseHubName(text);
    expect(name).toEqual({ file: undefined, quant: undefined, ...expected });
    expect(parseHubName(hubText(name))).toEqual(name);
  });

  it.each([
    ['hf:', /no owner and name/],
    ['hf:/Name', /no owner and name/],
    ['hf:Org/Na me', /'Na me' may hold letters/],
    ['hf:Org/-Name', /begins or ends with/],
    ['hf:Org/Name.', /begins or ends with/],
    ['hf:Org/Na--me', /holds '--'/],
    ['hf:Org/Na..me', /holds '--' or '\.\.'/],
    ['hf:Org/Name.git', /ends in .git/],
    [`hf:Org/${'x'.repeat(97)}`, /longer than 96/],
    ['hf:Org/Name/config.json', /'config.json' is no .gguf file/],
    ['hf:Org/Name/../a.gguf', /is no path/],
    ['hf:Org/Name@', /is no branch, tag or commit/],
    ['hf:Org/Name@../x', /is no branch, tag or commit/],
    ['hf:Org/Name@%zz', /encodes nothing/],
    ['hf:Org/Name@/a.gguf', /names a file, and no revision/],
    ['hf:Org/Name:Q4_K_M/a.gguf', /is no/],
    ['hf:Org/Name:', /no name of a quantisation/],
  ])('refuses %s', (text, message) => {
    expect(() => parseHubName(text)).toThrow(
      expect.objectContaining({ code: 'usage', message: expect.stringMatching(message) }),
    );
  });

  it('encodes revisions with slashes', () => {
    expect(resolveUrl('https://huggingface.co', 'a/b', 'refs/pr/1')).toBe(
      'https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/',
    );
  });

  it.each([
    ['https://huggingface.co/Org/Name', { repo: 'Org/Name', revision: 'main' }],
    ['https://huggingface.co/Org/Name/', { repo: 'Org/Name', revision: 'main' }],
    ['https://huggingface.co/Org/Name/tree/v1', { repo: 'Org/Name', revision: 'v1' }],
    ['https://huggingface.co/Org/Name/resolve/refs%2Fpr%2F1/', { repo: 'Org/Name', revision: 'refs/pr/1' }],
    ['https://huggingface.co/Org/Name/blob/main/a.gguf', { repo: 'Org/Name', revision: 'main', file: 'a.gguf' }],
    [
      'https://huggingface.co/Org/Name/resolve/v1/q/a.gguf?download=true',
      { repo: 'Org/Name', revision: 'v1', file: 'q/a.gguf' },
    ],
    ['https://huggingface.co/Org/Name?library=transformers', { repo: 'Org/Name', revision: 'main' }],
    ['https://huggingface.co/Org/Name/blob/v1/model-00001-of-00002.safetensors', { repo: 'Org/Name', revision: 'v1' }],
    ['https://huggingface.co/Org/Name/blob/main/onnx/config.json', undefined],
    ['https://hf.co/Org/Name', { repo: 'Org/Name', revision: 'main' }],
    [
      'https://huggingface.co/Org/Name?show_file_info=q%2Fa.gguf',
      { repo: 'Org/Name', revision: 'main', file: 'q/a.gguf' },
    ],
    [
      'https://huggingface.co/Org/Name/tree/main/UD-Q4_K_XL',
      { repo: 'Org/Name', revision: 'main', quant: 'UD-Q4_K_XL' },
    ],
    ['https://huggingface.co/Org/Name/tree/main/onnx', undefined],
    ['https://mirror.example/hub/Org/Name/tree/v1', { repo: 'Org/Name', revision: 'v1' }],
    ['https://mirror.example/hub/Org/Name/resolve/v1/a.gguf?signature=1', undefined],
    ['https://mirror.example/Org/Name', undefined],
    ['https://huggingface.co/datasets/Org/Name', undefined],
    ['https://huggingface.co/Org/Name/blob/main/README.md', undefined],
    ['https://huggingface.co/Org', undefined],
    ['https://example.com/Org/Name', undefined],
  ])('address %s', (url, name) => expect(hubNameOfUrl(new URL(url), 'https://mirror.example/hub')).toEqual(name));
});
