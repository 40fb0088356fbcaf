"""MMSearch: what is asked in its three stages, for questions with and without a picture.

The texts define the benchmark, slips of grammar included: they are those of its authors, as lmms-eval has them.
"""

from __future__ import annotations

PICTURE = "<image>"
"""Where a picture belongs in a text."""

_ASSISTANT = "You are a helpful assistant. I am giving you a question"
_EXAMPLES = (
    "Here are 3 examples:\n"
    "Question: Did Zheng Xiuwen wear a knee pad in the women's singles tennis final in 2024 Paris Olympics?\n"
    "Query to the search engine: Images of Zheng Xiuwen in the women's singles tennis final in 2024 Paris Olympics\n"
    "\n"
    "Question: When will Apple release iPhone16?\n"
    "Query to the search engine: iPhone 16 release date \n"
    "\n"
    "Question: Who will sing a French song at the Olympic Games closing ceremony?\n"
    "Query to the search engine: Singers at the Olympic Games closing ceremony, French song\n"
    "\n"
    "Question: {question} \n"
)
_RAISE = "Please raise a query to the search engine to search for what is useful for you to answer the question correctly. "
_QUERY = "Query to the search engine (do not involve any explanation): "
_FOUND = "The image search result is: {image_search_result}\n"
_WITH_SEARCH = (
    "You are provided with the search result of the image in the question. And you are provided with "
)
_SELECT = (
    "Select {rerank_num} website that are the most helpful for you to answer the question. Once you select it, the "
    "detailed content of them will be provided to help you correctly answer the question.\n"
    "The question is: {question}\n"
)
_INDEX = (
    "The website informations is: \n"
    "{website_information}\n"
    "\n"
    "You should directly output {rerank_num} website's index that can help you most, separated with ',', and enclose "
    "each website in angle brackets. The output format should be: <Website Index>. \n"
    "An example of the output is: {incontext_example}\n"
    "Your answer: "
)
_GUIDELINES = (
    "Please follow these guidelines when formulating your answer:\n"
    '1. If the question contains a false premise or assumption, answer "invalid question".\n'
    "2. When answering questions about dates, use the yyyy-mm-dd format.\n"
    "3. Answer the question with as few words as you can.\n"
    "\n"
    "You should now read the information of the website and answer the question.\n"
    "The website informations is {website_information}\n"
)
_ANSWER = "The question is: {question}.\nPlease directly output the answer without any explanation: "

WITHOUT_PICTURE = {
    "requery": _ASSISTANT
    + ", which cannot be solved without external knowledge.\n"
    + "Assume you have access to a text-only search engine (e.g., google). "
    + _RAISE
    + "Your query needs to consider the attribute of the query to search engine. \n"
    + _EXAMPLES
    + _QUERY,
    "rerank": _ASSISTANT
    + " and {brief_result_num} website information related to the question (including the screenshot, snippet and "
    + "title). \nYou should now read the screenshots, snippets and titles. "
    + _SELECT
    + _INDEX,
    "summarise": _ASSISTANT
    + " and {rerank_num} website information related to the question. \n"
    + _GUIDELINES
    + _ANSWER,
}
WITH_PICTURE = {
    "requery": _ASSISTANT
    + " including an image, which cannot be solved without external knowledge.\n"
    + "Assume you have access to a search engine (e.g., google). "
    + _RAISE
    + "You need to consider the characteristics of asking questions to search engines when formulating your "
    + "questions. \nYou are also provided with the search result of the image in the question. You should leverage "
    + "the image search result to raise the text query.\n"
    + _EXAMPLES
    + _FOUND
    + _QUERY,
    "rerank": _ASSISTANT
    + " including an image. "
    + _WITH_SEARCH
    + "{brief_result_num} website information related to the question (including the screenshot, snippet and title). \n"
    + "You should now read the screenshots, snippets and titles of these websites. "
    + _SELECT
    + _FOUND
    + _INDEX,
    "summarise": _ASSISTANT
    + " including an image. "
    + _WITH_SEARCH
    + "{rerank_num} website information related to the question. \n"
    + _GUIDELINES
    + _FOUND
    + _ANSWER,
}
