package main

import (
	"slices"
	"strings"
	"testing"
)

func TestADecisionThatReadsASentenceIsFound(t *testing.T) {
	const source = `package p

func f(d, e T, why string) {
	_ = strings.HasPrefix(d.Why, "asking the owner of ")
	_, _ = strings.CutPrefix(r.Status.AnsweredBy, "policy ")
	_ = pattern.MatchString(e.Message)
	_ = d.Why == EndedBy(name)
	_ = "gone" != d.What
	_ = d.Message == name+" ended"
	_ = d.Why == "" || d.Why != why || d.Why == Alive
	_ = d.Why == EndedBy(name) //outcome:older
	_ = strings.Contains(text, e.Why)
	_ = strings.TrimPrefix(e.Message, e.Peer)
	_ = strings.HasPrefix(d.Reason, "x")
}
`
	found, err := in("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range found {
		lines = append(lines, strings.Split(f, ":")[1])
	}
	if want := []string{"4", "5", "6", "7", "8", "9"}; !slices.Equal(lines, want) {
		t.Errorf("lines %q, want %q:\n%s", lines, want, strings.Join(found, "\n"))
	}
	if _, err := in("p.go", []byte("no Go")); err == nil {
		t.Error("what cannot be read is taken for clean")
	}
}
