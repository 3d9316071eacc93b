import { expect, test } from 'vitest';
import { randomAdapter } from '../model/testing/random_adapter.js';
import { makeRandomModel } from '../model/testing/random_model.js';
import { openTestModel, startTestServer } from './testing/test_server.js';

test('a model is named with its adapters, each answers as its own', { timeout: 120_000 }, async () => {
  const { files } = randomAdapter(makeRandomModel({ seed: 11 }), { seed: 1 });
  const model = await openTestModel({
    adapters: { sql: [...files].map(([name, bytes]) => new File([bytes], name)) },
  });
  const server = await startTestServer(model);
  const ask = async (path: string, body?: object): Promise<{ status: number; told: Record<string, unknown> }> => {
    const post = body && { method: 'POST', body: JSON.stringify(body) };
    const response = await fetch(`${server.url}${path}`, post);
    return { status: response.status, told: (await response.json()) as Record<string, unknown> };
  };
  try {
    const complete = async (name: string) => {
      const request = { model: name, prompt: [1, 2, 3], max_tokens: 8, seed: 1, ignore_eos: true };
      const { status, told } = await ask('/v1/completions', request);
      return { status, model: told['model'], choices: told['choices'] as object[] | undefined };
    };
    const [base, sql] = [await complete('tiny'), await complete('tiny:sql')];
    expect(base).toMatchObject({ status: 200, model: 'tiny' });
    expect(sql).toMatchObject({ status: 200, model: 'tiny:sql' });
    expect(sql.choices).not.toEqual(base.choices);
    const { told: list } = await ask('/v1/models');
    expect((list['data'] as { id: string }[]).map(({ id }) => id)).toEqual(['tiny', 'tiny:sql']);
    expect((await ask('/v1/models/tiny:sql')).status).toBe(200);
    const none = await ask('/v1/completions', { model: 'tiny:none', prompt: [1] });
    expect(none).toMatchObject({
      status: 404,
      told: { error: { message: "model 'tiny:none' not found; models are tiny, tiny:sql", code: 'model_not_found' } },
    });
    const vectors = await ask('/v1/embeddings', { model: 'tiny:sql', input: [1, 2] });
    expect(vectors).toMatchObject({ status: 400, told: { error: { param: 'model' } } });
    await model.adapters.remove('sql');
    expect((await complete('tiny:sql')).status).toBe(404);
  } finally {
    await server.close();
    await model.dispose();
  }
});
