package main

import (
	"regexp"
	"strings"
)

// kind is a licence: how it is told by its words, in small letters with single spaces, and what stands for it in the file.
type kind struct {
	name string
	has  []string // all of them
	not  []string // none of them
	text string
}

const debians = "On Debian systems the text of the licence is in /usr/share/common-licenses/"

// kinds are those that are known. What is not allowed is known by its name, too.
var kinds = []kind{
	{name: "Apache-2.0", has: []string{"apache license", "version 2.0, january 2004"}, text: debians + "Apache-2.0."},
	{name: "Apache-2.0", has: []string{"licensed under the apache license, version 2.0 (the"}, not: []string{"version 2.0, january 2004"}, text: debians + "Apache-2.0."}, // its notice alone
	{name: "MPL-2.0", has: []string{"mozilla public license", "covered software"}, text: debians + "MPL-2.0."},
	{name: "LGPL-2.1", has: []string{"gnu lesser general public license", "version 2.1, february 1999"}, text: debians + "LGPL-2.1."},
	{name: "GPL", has: []string{"gnu general public license", "this license is intended to guarantee your freedom"}},
	{name: "GPL", has: []string{"gnu general public license", "the gnu general public license is a free, copyleft license"}},
	{name: "AGPL", has: []string{"gnu affero general public license", "version 3, 19 november 2007"}},
	{name: "MIT", has: []string{"permission is hereby granted, free of charge, to any person obtaining a copy of this software"}, text: mit},
	{name: "BSD-3-Clause", has: []string{"redistributions in binary form must reproduce", "endorse or promote products"}, not: []string{"must display the following acknowledg"}, text: bsd(true)},
	{name: "BSD-2-Clause", has: []string{"redistributions in binary form must reproduce"}, not: []string{"endorse or promote products"}, text: bsd(false)},
	{name: "BSD-4-Clause", has: []string{"redistributions in binary form must reproduce", "must display the following acknowledg"}},
	{name: "ISC", has: []string{"distribute this software for any purpose with or without fee is hereby granted"}, text: isc},
	{name: "public-domain", has: []string{"this is free and unencumbered software released into the public domain"}, text: "Its authors have placed it in the public domain, and disclaim all warranties."},
	{name: "public-domain", has: []string{"code and documentation in sqlite has been dedicated to the public domain"}},
	{name: "CC-BY-4.0", has: []string{"creative commons attribution 4.0 international"}, text: "Of documents in the sources, none of which is in a program: https://creativecommons.org/licenses/by/4.0/legalcode"},
	{name: "CC-BY-SA-4.0", has: []string{"attribution-sharealike 4.0 international"}, text: "Of documents in the sources, none of which is in a program: https://creativecommons.org/licenses/by-sa/4.0/legalcode"},
}

// allowed are the licences that may be linked with what is under Apache-2.0, and handed on with it as it is done here.
var allowed = map[string]bool{
	"Apache-2.0": true, "MPL-2.0": true, "MIT": true, "BSD-3-Clause": true, "BSD-2-Clause": true, "ISC": true, "public-domain": true, "CC-BY-4.0": true, "CC-BY-SA-4.0": true,
}

// kindsOf are the licences in a text, which may have several one after the other.
func kindsOf(text string) (found []string) {
	words := strings.Join(strings.Fields(strings.ToLower(strings.NewReplacer("*", " ", "//", " ", "#", " ", "“", `"`, "’", "'").Replace(text))), " ")
next:
	for _, k := range kinds {
		for _, w := range k.has {
			if !strings.Contains(words, w) {
				continue next
			}
		}
		for _, w := range k.not {
			if strings.Contains(words, w) {
				continue next
			}
		}
		found = append(found, k.name)
	}
	return found
}

var (
	holder   = regexp.MustCompile(`(?im)^[\s*#/>]*(?:portions )?copyright(?: ?:)?\s+(?:\(c\)|©|&copy;)?\s*(.*\S)\s*$`)
	template = regexp.MustCompile(`(?i)^\[|\byyyy\b|name of copyright owner|^(owner|holders?|notice|license|law|interest|statement|and|in|to|the)\b|grant of|licensed to you`)
)

// holders are who has the copyright, in the words of the text without "Copyright (c)".
func holders(text string) (all []string) {
	for _, m := range holder.FindAllStringSubmatch(text, -1) {
		who := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(m[1], "(C)"), "©"))
		who = strings.TrimRight(who, " */")
		if !template.MatchString(who) && (strings.ContainsAny(who, "0123456789") || strings.Contains(who, "uthors")) {
			all = append(all, who)
		}
	}
	return all
}

const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`

const isc = `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the
above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF
OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.`

func bsd(endorsement bool) string {
	third := ""
	if endorsement {
		third = `
3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products derived from this
   software without specific prior written permission.
`
	}
	return `Redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are
met:

1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following disclaimer in the
   documentation and/or other materials provided with the distribution.
` + third + `
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED
TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR
CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO,
PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF
LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.`
}
