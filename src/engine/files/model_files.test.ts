import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { sha256 } from '../../base/math.js';
import { readText } from '../../loader/index.js';
import { startHub } from '../../loader/testing/hub_server.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { modelTexts, SINGLE_FILE } from '../../loader/tensor_index.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { wordLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import { readSelfTest } from '../faces/self_test.js';
import { openModelFiles, openTokenizer } from './model_files.js';
import { openFiles } from './open_files.js';

const { files } = makeRandomVision({ seed: 3 });
const tokenizer = { 'tokenizer.json': JSON.stringify(wordLevelTokenizer().json) };

describe('templates of files of their own, as transformers prefers them', () => {
  const config = { 'tokenizer_config.json': JSON.stringify({ chat_template: 'of the config' }) };
  const older = { 'chat_template.json': JSON.stringify({ chat_template: 'of the processor' }) };
  const file = { 'chat_template.jinja': 'of the file' };
  const forTools = { 'additional_chat_templates/tool_use.jinja': 'of {{ tools[0].name }}' };
  test.each<[string, Record<string, string>, plain: string, withTools: string]>([
    ["the config's", config, 'of the config', 'of the config'],
    ["an older processor's", { ...config, ...older }, 'of the processor', 'of the processor'],
    ['a file', { ...config, ...older, ...file }, 'of the file', 'of the file'],
    ['one for tools', { ...config, ...file, ...forTools }, 'of the file', 'of clock'],
    ['one for tools alone', { ...config, ...forTools }, 'of the config', 'of the config'],
  ])('%s', async (_what, more, plain, withTools) => {
    const source = new MemorySource({ ...Object.fromEntries(files), ...tokenizer, ...more });
    const { tokenizer: read } = await openTokenizer(await openModelFiles(source));
    const messages = [{ role: 'user', content: 'hi' }];
    expect(read!.applyChatTemplate(messages)).toBe(plain);
    expect(read!.applyChatTemplate(messages, { tools: [{ name: 'clock' }] })).toBe(withTools);
  });
});

test('integrity goes with names of the Hub, and is looked at before weights are downloaded', async () => {
  const made = Object.fromEntries(makeRandomModel({ seed: 2 }).files);
  const hub = await startHub({ 'org/model': { files: { ...made, 'README.md': 'read' }, lfs: () => true } });
  const home = await mkdtemp(join(tmpdir(), 'splitkv-files-'));
  vi.stubEnv('HF_HOME', home);
  vi.stubEnv('HF_HUB_CACHE', '');
  const [right, wrong] = [await sha256(made['model.safetensors']!), '0'.repeat(64)];
  const open = (integrity: Record<string, string>) =>
    openFiles('hf:org/model', { network: { hub: hub.url }, integrity });
  try {
    await expect(open({ 'model.safetensors': wrong })).rejects.toThrow(
      /the server has SHA-256 \w+, integrity says 0000/,
    );
    await expect(open({ 'model.safetensor': right })).rejects.toThrow(
      /model\.safetensor is not in .*integrity names it/,
    );
    expect(await readdir(home)).toEqual([]);
    const readme = await sha256(new TextEncoder().encode('read'));
    const source = await open({ 'model.safetensors': right, 'README.md': readme });
    expect(await readText(source, 'README.md')).toBe('read');
  } finally {
    vi.unstubAllEnvs();
    await hub[Symbol.asyncDispose]();
    await rm(home, { recursive: true });
  }
});

test('what is read of a folder is what is downloaded of one', async () => {
  const dense = '2_Dense_8';
  const modules = [
    { path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
    { path: dense, type: 'sentence_transformers.models.Dense' },
  ];
  const asked = new Set<string>();
  const source = new (class extends MemorySource {
    override size(file: string): Promise<number | undefined> {
      asked.add(file);
      return super.size(file);
    }
  })({
    ...Object.fromEntries(files),
    'modules.json': JSON.stringify(modules),
    '1_Pooling/config.json': '{"pooling_mode_mean_tokens":true}',
    [`${dense}/config.json`]: '{}',
    [`${dense}/model.safetensors`]: '',
  });
  const every = new (class extends MemorySource {
    override async size(): Promise<number> {
      return this.bytes;
    }
    readonly bytes = JSON.stringify(modules).length;
  })({ 'modules.json': JSON.stringify(modules) });
  const model = await openModelFiles(source);
  await openTokenizer(model);
  await Promise.all([model.pictures(), model.sounds(), model.reader(), readSelfTest(source)]);
  // Its one dense layer is empty.
  await expect(model.sentence(() => model.reader())).rejects.toThrow(/2_Dense_8/);
  expect(asked.size).toBeGreaterThan(12);
  const downloaded = new Set([...(await modelTexts(every)), SINGLE_FILE]);
  expect([...asked].filter((file) => !downloaded.has(file))).toEqual([]);
});
