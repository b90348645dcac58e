package main

import (
	"strings"
	"testing"
)

func TestWhoNamesAClusterIsNotLedToThisLaptops(t *testing.T) {
	for args, want := range map[string]bool{
		"get nodes":                                false,
		"--context work get nodes":                 true,
		"get nodes --context=work":                 true,
		"get nodes --cluster work":                 true,
		"--kubeconfig=/k get nodes":                true,
		"-s https://k get nodes":                   true,
		"--server https://k get nodes":             true,
		"exec web -- tool --context x":             false,
		"create rolebinding r --user=bob":          false,
		"get pods -l context=work --contexts=none": false,
	} {
		if elsewhere(strings.Fields(args)) != want {
			t.Errorf("%s: %v", args, !want)
		}
	}
}
