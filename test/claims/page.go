package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// claim is a sentence of a page, as it can stand in a table, below its heading there, with the tests that show it.
type claim struct {
	heading, anchor string // the anchor as GitHub makes it
	sentence        string
	tests           []string
}

var (
	fence   = regexp.MustCompile("^\\s*```")
	title   = regexp.MustCompile(`^#{1,6} +(.*)`)
	item    = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) +`)
	marker  = regexp.MustCompile(`<!-- shown by ([^>]*?) *-->`)
	comment = regexp.MustCompile(`<!--.*?-->`)
	anchor  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	// Where a sentence ends, and the first letter of another. Kith's programs have no capitals.
	ends = regexp.MustCompile("[.?!][)\"'*`]*\\s+([^\\s\\p{Ll}]|kith)")
)

const (
	opening = "<!-- shown by"
	longest = 300 // letters of a sentence
)

// claimsOf are what a page claims, from its top to its end.
func claimsOf(page string) (claims []claim, wrong []error) {
	var below claim
	var block []string
	anchors := map[string]int{}
	flush := func() {
		text := strings.Join(block, " ")
		block = nil
		found, err := claimsIn(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("below %q: %w", below.heading, err))
		}
		for _, c := range found {
			c.heading, c.anchor = below.heading, below.anchor
			claims = append(claims, c)
		}
	}
	inCode := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if fence.MatchString(line) {
			flush()
			inCode = !inCode
			continue
		}
		if inCode {
			continue
		}
		if m := title.FindStringSubmatch(line); m != nil {
			flush()
			below.heading, below.anchor = plain(m[1]), slug(m[1])
			if n := anchors[below.anchor]; n > 0 {
				anchors[below.anchor]++
				below.anchor = fmt.Sprintf("%s-%d", below.anchor, n)
			} else {
				anchors[below.anchor] = 1
			}
			if strings.Contains(line, opening) {
				wrong = append(wrong, fmt.Errorf("the heading %q has a comment that names tests, and is no sentence", below.heading))
			}
			continue
		}
		row := strings.HasPrefix(strings.TrimSpace(line), "|")
		if row || strings.TrimSpace(line) == "" || item.MatchString(line) {
			flush()
		}
		block = append(block, item.ReplaceAllString(line, ""))
		if row {
			flush()
		}
	}
	flush()
	return claims, wrong
}

// claimsIn are what one paragraph, item of a list or row of a table claims. A row is one claim.
func claimsIn(text string) (claims []claim, err error) {
	marks := marker.FindAllStringSubmatchIndex(text, -1)
	if len(marks) != strings.Count(text, opening) {
		return nil, fmt.Errorf("a comment that names tests does not end: %s", short(text))
	}
	if row := strings.TrimSpace(text); strings.HasPrefix(row, "|") {
		var all claim
		for _, m := range marks {
			all.tests = append(all.tests, names(text[m[2]:m[3]])...)
		}
		if len(marks) == 0 {
			return nil, nil
		}
		all.sentence = sentenceOfRow(row)
		if all.sentence == "" {
			return nil, fmt.Errorf("no sentence is before the comment that names %s", all.tests[0])
		}
		return []claim{all}, nil
	}
	last := 0
	for _, m := range marks {
		c := claim{tests: names(text[m[2]:m[3]])}
		if strings.TrimSpace(text[last:m[0]]) == "" {
			return claims, fmt.Errorf("no sentence is before the comment that names %s", strings.Join(c.tests, "; "))
		}
		last = m[1]
		before := plain(text[:m[0]])
		if at := ends.FindAllStringSubmatchIndex(before, -1); at != nil {
			before = before[at[len(at)-1][2]:]
		}
		c.sentence = strings.ReplaceAll(short(before), "|", `\|`)
		claims = append(claims, c)
	}
	return claims, nil
}

func names(text string) (tests []string) {
	for name := range strings.SplitSeq(text, ";") {
		tests = append(tests, strings.Join(strings.Fields(name), " "))
	}
	return tests
}

var cell = regexp.MustCompile(`(?:\\.|[^|\\])+`)

// sentenceOfRow is a row's cells, joined.
func sentenceOfRow(row string) string {
	var cells []string
	for _, c := range cell.FindAllString(plain(row), -1) {
		if c = strings.TrimSpace(c); c != "" {
			cells = append(cells, c)
		}
	}
	return short(strings.Join(cells, ": "))
}

// plain is a text without comments, and with the words of its links alone, since these lead from another page.
func plain(text string) string {
	text = anchor.ReplaceAllString(comment.ReplaceAllString(text, ""), "$1")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "**", "")), " ")
}

// short ends a long text behind a word, and not within code.
func short(text string) string {
	letters := []rune(text)
	if len(letters) <= longest {
		return text
	}
	cut := string(letters[:longest])
	cut = cut[:strings.LastIndex(cut, " ")]
	if strings.Count(cut, "`")%2 == 1 {
		cut = cut[:strings.LastIndex(cut, "`")]
	}
	return strings.TrimRight(cut, " ,;:(") + " …"
}

// slug is the anchor of a heading, as GitHub makes it.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, plain(heading))
}
