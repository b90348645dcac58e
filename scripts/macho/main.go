// Command macho tells whether files are programs for macOS on the processor that is named: go run ./scripts/macho arm64 FILE…
package main

import (
	"debug/macho"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: macho amd64|arm64 FILE…")
		os.Exit(2)
	}
	cpu, known := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "macho: no processor %q, there are amd64 and arm64\n", os.Args[1])
		os.Exit(2)
	}
	for _, path := range os.Args[2:] {
		if err := check(path, cpu); err != nil {
			fmt.Fprintln(os.Stderr, "macho:", err)
			os.Exit(1)
		}
		fmt.Println(path, "is a program for macOS on", os.Args[1])
	}
}

func check(path string, cpu macho.Cpu) error {
	f, err := macho.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	switch {
	case f.Type != macho.TypeExec:
		return fmt.Errorf("%s is %v, not a program", path, f.Type)
	case f.Cpu != cpu:
		return fmt.Errorf("%s is for %v, not for %v", path, f.Cpu, cpu)
	case f.Section("__text") == nil:
		return fmt.Errorf("%s has no code", path)
	}
	return nil
}
