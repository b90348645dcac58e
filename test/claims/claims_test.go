package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestWhatAPageClaims(t *testing.T) {
	page := strings.Join([]string{
		"# A page",
		"",
		"No claim. A [guest](x.md#y) sends from **its own** address,",
		"or not at all (`a | b`). <!-- shown by TestOne;",
		"TestTwo/sub test, with a comma --> More. kithd is back <!-- of no test --> at once: <!-- shown by",
		"core/x.TestThree -->",
		"",
		"```",
		"not this. <!-- shown by TestNone -->",
		"```",
		"## A page",
		"",
		"| who | gets |",
		"|---|---|",
		"| bob's [LAN](z.md) | no <!-- shown by TestOne --> |",
		"| carol's \\| LAN | <!-- shown by TestTwo --> |",
		"- one. Two",
		"- three <!-- shown by TestOne -->",
	}, "\n")
	got, wrong := claimsOf(page)
	want := []claim{
		{"A page", "a-page", "A guest sends from its own address, or not at all (`a \\| b`).", []string{"TestOne", "TestTwo/sub test, with a comma"}},
		{"A page", "a-page", "kithd is back at once:", []string{"core/x.TestThree"}},
		{"A page", "a-page-1", "bob's LAN: no", []string{"TestOne"}},
		{"A page", "a-page-1", `carol's \| LAN`, []string{"TestTwo"}},
		{"A page", "a-page-1", "three", []string{"TestOne"}},
	}
	if len(wrong) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\nwant\n%+v", wrong, got, want)
	}
}

func TestACommentWithoutASentenceIsAnError(t *testing.T) {
	for _, page := range []string{
		"<!-- shown by TestOne -->",
		"One. <!-- shown by TestOne --> <!-- shown by TestTwo -->",
		"| | <!-- shown by TestOne --> |",
		"# One <!-- shown by TestOne -->",
		"One. <!-- shown by TestOne\n\nTestTwo -->",
	} {
		if _, wrong := claimsOf(page); len(wrong) == 0 {
			t.Errorf("%q is taken", page)
		}
	}
}

func TestLongSentencesAreCutBehindAWord(t *testing.T) {
	long := strings.Repeat("word ", 58) + "`some code` and more"
	if got := short(long); got != strings.Repeat("word ", 58)[:289]+" …" {
		t.Errorf("%q", got)
	}
}

// everything is a repository of three files.
func everything() tests {
	all := tests{named: map[string][]where{}, text: map[string]string{}}
	all.add("core/x/x_test.go", "func TestOne(t *testing.T) {\n\tt.Run(\"sub test\", nil)\n}\nfunc TestBoth(t *testing.T) {}\n")
	all.add("core/y/y_test.go", "func TestBoth(t *testing.T) {}\nfunc FuzzOne(f *testing.F) {}\n")
	all.add("test/e2e/a_test.go", "//go:build lab && soak\n\nfunc TestLong(t *testing.T) {}\n")
	return all
}

func TestWhereATestIs(t *testing.T) {
	unitX, unitY := where{"core/x", "unit"}, where{"core/y", "unit"}
	for name, want := range map[string][]where{
		"TestOne": {unitX}, "TestOne/sub_test": {unitX}, "core/x.TestOne/sub test": {unitX}, "FuzzOne": {unitY}, "TestLong": {{"test/e2e", "soak"}},
		"TestBoth": {unitX, unitY}, "core/y.TestBoth": {unitY},
		"TestNone": nil, "TestOne/other": nil, "core/y.TestOne": nil, "one": nil, "": nil,
	} {
		got, err := everything().find(name)
		if (err == nil) != (want != nil) || len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v %v", name, got, err)
		}
	}
	for tags, want := range map[string]string{"lab": "lab", "lab && !soak": "lab", "lab && soak": "soak", "packages && linux": "packages", "packages && soak": "soak", "linux": "unit"} {
		if got := kind(tags); got != want {
			t.Errorf("%s: %s, want %s", tags, got, want)
		}
	}
}

func TestTestsThatAPageNamesAreThere(t *testing.T) {
	if wrong := everything().namedIn("`TestOne`, `TestOne/sub test`, `go test -run TestBo` and TestX in prose"); wrong != nil {
		t.Error(wrong)
	}
	if wrong := everything().namedIn("`TestGone` and `TestBo`"); len(wrong) != 2 {
		t.Error(wrong)
	}
}

func TestClaimsAreTablesBelowTheirHeadings(t *testing.T) {
	claims, _ := claimsOf("# Page\nIt is so. <!-- shown by TestLong; TestOne; core/y.TestBoth -->\n## Part\nThis, too. <!-- shown by TestBoth -->")
	var got strings.Builder
	if wrong := everything().write(&got, "docs/page.md", claims); wrong != nil {
		t.Error(wrong)
	}
	want := `
# [docs/page.md](page.md)

## [Page](page.md#page)

| claim | tests | |
|---|---|---|
| It is so. | test/e2e: ` + "`TestLong`; core/x: `TestOne`; core/y: `TestBoth`" + ` | unit, soak |

## [Part](page.md#part)

| claim | tests | |
|---|---|---|
| This, too. | core/x: ` + "`TestBoth`; core/y: `TestBoth`" + ` | unit |
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}
