package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLicencesAreToldByTheirWords(t *testing.T) {
	apache := "                                 Apache License\n                           Version 2.0, January 2004\n"
	for name, c := range map[string]struct {
		text    string
		kinds   []string
		holders []string
	}{
		"Apache": {apache + "   Copyright [yyyy] [name of copyright owner]\n", []string{"Apache-2.0"}, nil},
		"MIT":    {"The MIT License (MIT)\n\nCopyright (c) 2014 Brian Goff\n\n" + mit, []string{"MIT"}, []string{"2014 Brian Goff"}},
		"BSD 3":  {"// Copyright 2009 The Go Authors. All rights reserved.\n" + bsd(true), []string{"BSD-3-Clause"}, []string{"2009 The Go Authors. All rights reserved."}},
		"BSD 2":  {"Copyright © 2013 The Gorilla WebSocket Authors\n" + bsd(false), []string{"BSD-2-Clause"}, []string{"2013 The Gorilla WebSocket Authors"}},
		"BSD 4":  {bsd(true) + " All advertising materials must display the following acknowledgement", []string{"BSD-4-Clause"}, nil},
		"ISC":    {"ISC License\n\nCopyright (c) 2012-2016 Dave Collins <dave@davec.name>\n" + isc, []string{"ISC"}, []string{"2012-2016 Dave Collins <dave@davec.name>"}},
		"its notice": {"Copyright 2013 John Howard Palevich\n\n   Licensed under the Apache License, Version 2.0 (the \"License\");\n   you may not use this file", []string{"Apache-2.0"},
			[]string{"2013 John Howard Palevich"}},
		"two":           {apache + "\n---\n" + mit, []string{"Apache-2.0", "MIT"}, nil},
		"GPL":           {"GNU General Public License ... This license is intended to guarantee your freedom to share", []string{"GPL"}, nil},
		"of a new kind": {"You may use this on Sundays.", nil, nil},
		"in comments":   {"/* Permission is hereby granted, free of charge,\n * to any person obtaining a copy of this software", []string{"MIT"}, nil},
	} {
		if got := kindsOf(c.text); !slices.Equal(got, c.kinds) {
			t.Errorf("%s: %v, want %v", name, got, c.kinds)
		}
		if got := holders(c.text); !slices.Equal(got, c.holders) {
			t.Errorf("%s: holders %q, want %q", name, got, c.holders)
		}
	}
}

// TestALicenceThatNobodyReadIsAnError: neither an unknown one, nor none, nor one that forbids what is done here gets into a package.
func TestALicenceThatNobodyReadIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		says  string
		is    string
	}{
		"none":     {map[string]string{"README": mit}, "no file of a licence", ""},
		"unknown":  {map[string]string{"LICENSE": mit, "LICENSE.extra": "only on Sundays"}, "of no kind that is known", ""},
		"copyleft": {map[string]string{"COPYING": "GNU General Public License: the GNU General Public License is a free, copyleft license"}, "its licence is GPL", ""},
		"a notice": {map[string]string{"LICENSE.md": bsd(true), "NOTICE": "This product has colours.", "license.go": "package x"}, "", "BSD-3-Clause"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w, err := look("example.org/x", dir)
		if c.says == "" && (err != nil || w.licence != c.is || w.notice != c.files["NOTICE"]) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
}
