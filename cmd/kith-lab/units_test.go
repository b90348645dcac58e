package main

import (
	"reflect"
	"testing"

	"github.com/spf13/cobra"
)

func TestRates(t *testing.T) {
	for in, want := range map[string]uint64{"10mbit": 10e6, "500kbit": 500e3, "1.5Gbit": 1.5e9, "9000bit": 9000} {
		got, err := parseRate(in)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "10", "mbit", "-1mbit", "0mbit", "10mb", "1e30gbit", "NaNbit"} {
		if got, err := parseRate(in); err == nil {
			t.Errorf("%s is taken as %d", in, got)
		}
	}
	for in, want := range map[uint64]string{10e6: "10mbit", 1.5e9: "1.5gbit", 900: "900bit", 0: "0bit"} {
		if got := formatRate(in); got != want {
			t.Errorf("%d: %s", in, got)
		}
	}
}

func TestParts(t *testing.T) {
	for in, want := range map[string]float64{"5%": 0.05, "0": 0, "0.5": 0.5, "100%": 1} {
		if got, err := parsePart(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "-1%", "101%", "x", "NaN"} {
		if got, err := parsePart(in); err == nil {
			t.Errorf("%s is taken as %v", in, got)
		}
	}
}

func TestSetsAreYAML(t *testing.T) {
	got, err := parseSets([]string{"a=1", "b=x y", "c={d: [1, 2]}", "e="})
	want := map[string]any{"a": float64(1), "b": "x y", "c": map[string]any{"d": []any{float64(1), float64(2)}}, "e": nil}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range []string{"a", "=1", "a={"} {
		if _, err := parseSets([]string{in}); err == nil {
			t.Errorf("%q is taken", in)
		}
	}
}

func TestEveryCommandHasHelpAndExamples(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.Hidden && (c.Short == "" || c.Example == "") {
			t.Errorf("%s lacks a description or an example", c.CommandPath())
		}
		for _, s := range c.Commands() {
			visit(s)
		}
	}
	visit(root())
}
