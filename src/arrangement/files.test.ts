import { describe, expect, test } from 'vitest';
import { arrange } from './arrange.js';
import { parseArrangementFile, toArrangementFile, parseProfile } from './files.js';

describe('profiles', () => {
  const profile = {
    model: 'm',
    kv_budget: 0.2,
    layers: [
      [1, 2.5],
      [0, 3],
    ],
  };

  test('are read from text and from values; other keys may be there', () => {
    expect(parseProfile(profile)).toEqual(profile);
    expect(parseProfile(JSON.stringify({ ...profile, samples: 8 }))).toMatchObject(profile);
  });

  test.each<[string, unknown, string]>([
    ['text that is no JSON', '{', 'p.json: not valid JSON'],
    ['no object', [1], 'p.json is [1]; write a profile: an object with model, kv_budget and layers'],
    [
      'a misspelt key',
      { model: 'm', kv_budget: 0.2, layer: [[1]] },
      "p.json.layers is missing; write a list, for each layer the mean kept entries of each kv head. There is 'layer'",
    ],
    ['no model', { ...profile, model: 7 }, "p.json.model is 7; write the model's name in quotes"],
    ['no budget', { ...profile, kv_budget: 0 }, 'p.json.kv_budget is 0; write a number above 0'],
    ['no layers', { ...profile, layers: [] }, 'p.json.layers is []; write at least one layer'],
    ['a layer without heads', { ...profile, layers: [[]] }, 'p.json.layers[0] is []; write at least one kv head'],
    ['a negative mean', { ...profile, layers: [[1, -1]] }, 'p.json.layers[0][1] is -1; write a number of at least 0'],
    [
      'no mean',
      { ...profile, layers: [[1, null]] },
      'p.json.layers[0][1] is null; write the mean number of kept entries',
    ],
    ['ragged layers', { ...profile, layers: [[1, 2], [3]] }, 'p.json.layers[1] has 1 kv heads, layers[0] has 2'],
  ])('%s is refused', (_what, value, message) => {
    expect(() => parseProfile(value, 'p.json')).toThrow(message);
  });
});

describe('arrangement files', () => {
  const found = arrange({
    loads: [
      [5, 1, 1],
      [1, 1, 4],
    ],
    ranks: 2,
    copies: 1,
    mode: 'wrap',
  });
  const file = toArrangementFile('m', 2, found);

  test('come back as they were written', () => {
    expect(parseArrangementFile(JSON.stringify(file))).toEqual(file);
    expect(file).toMatchObject({ version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap' });
    expect(file.placement).toEqual(found.placement);
  });

  const placed = (...copies: object[]): object => ({ ...file, placement: [[copies]] });
  test.each<[string, unknown, string]>([
    ['a later version', { ...file, version: 2 }, 'a.json.version is 2; write 1'],
    ['an unknown mode', { ...file, mode: 'wrapp' }, 'a.json.mode is "wrapp"; write the mode that made it: static'],
    ['an unknown key', { ...file, rank: 2 }, "a.json: unknown key 'rank'. Did you mean 'ranks'?"],
    ['a rank that is not there', placed({ rank: 2, share: 1 }), 'placement[0][0] has rank 2; of 2 ranks the last is 1'],
    ['a rank twice', placed({ rank: 1, share: 0.5 }, { rank: 1, share: 0.5 }), 'has rank 1 after 1; list each once'],
    ['too small shares', placed({ rank: 0, share: 0.5 }), 'placement[0][0]: its shares add up to 0.5; expected 1'],
    ['a share of nothing', placed({ rank: 0, share: 0 }), 'placement[0][0][0].share is 0; write a share above 0'],
    ['a head nowhere', placed(), 'a.json.placement[0][0] is []; write at least one'],
    ['ragged layers', { ...file, placement: [file.placement[0], [file.placement[0]![0]]] }, 'placement[1] has 1 heads'],
  ])('%s is refused', (_what, value, message) => {
    expect(() => parseArrangementFile(value, 'a.json')).toThrow(message);
  });
});
