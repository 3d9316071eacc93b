// node chain.mjs: a chain of LangChain over a server of this machine.
import { StringOutputParser } from '@langchain/core/output_parsers';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { ChatOpenAI } from '@langchain/openai';

const baseURL = process.env.SPLITKV_URL ?? 'http://127.0.0.1:8000/v1';
const model = process.env.MODEL ?? 'smollm2-360m-instruct';
const llm = new ChatOpenAI({ model, apiKey: 'none', temperature: 0, maxTokens: 100, configuration: { baseURL } });

const prompt = ChatPromptTemplate.fromMessages([['user', '{story} {question}']]);
const chain = prompt.pipe(llm).pipe(new StringOutputParser());
const story = 'mia put the red key in the kitchen box . leo hid the blue key in the attic chest .';
const answers = await chain.batch([
  { story, question: 'where is the red key ?' },
  { story, question: 'where is the blue key ?' },
]);
for (const answer of answers) console.log(answer.trim());
for await (const piece of await chain.stream({ story, question: 'where is the red key ?' })) {
  process.stdout.write(piece);
}
process.stdout.write('\n');
