// Asks the server at TYPESAFE_BASE_URL with TypeSafe's own package, and prints what the package made of the answers.
import { BadRequestError, TypeSafeClient, UnprocessableEntityError, choice, noul, score } from "@typesafe-ai/sdk";

const client = new TypeSafeClient();
const questions = {
  late: noul("Is the parcel late?"),
  team: choice("Who should answer?", { billing: null, shipping: "parcels" }),
  anger: score("How upset is the customer?", ["calm", "annoyed", "furious"]),
};

async function kindOf(request) {
  try {
    await client.systemOne(request);
    return "answered";
  } catch (error) {
    const known = [BadRequestError, UnprocessableEntityError].find((kind) => error instanceof kind);
    return [known?.name ?? String(error), error.status, Boolean(error.requestId)];
  }
}

const state = "My parcel is four days late. ".repeat(100);
const { data, requestId } = await client.systemOne({ state, questions }).withResponse();
console.log(
  JSON.stringify({
    answers: data.answers,
    usage: data.usage,
    requestId,
    models: (await client.models.list()).map((model) => model.name),
    elevenLevels: await kindOf({ state, questions: { q: score("How?", Array(11).fill("level")) } }),
    unknownModel: await kindOf({ state, questions, model: "gpt-5" }),
  }),
);
