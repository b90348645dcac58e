package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
)

// Between allows a command from least to most arguments (-1: any number).
func Between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		wanted := screen.Count(least, "argument")
		if most != least {
			wanted = fmt.Sprintf("%d to %s", least, screen.Count(most, "argument"))
		}
		if n := len(args); n < least || most >= 0 && n > most {
			return fmt.Errorf("`%s` takes %s, not %d", strings.TrimSuffix(c.UseLine(), " [flags]"), wanted, n)
		}
		return nil
	}
}

// TimeoutFlag gives c the flag of how long it may take.
func TimeoutFlag(c *cobra.Command, to *time.Duration, usage string) {
	c.Flags().DurationVar(to, "timeout", 0, usage+", for example 90s; 0 waits as long as it takes")
}

// DryRunFlag gives c the flag by which it only says what it would do.
func DryRunFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "dry-run", false, "say what it would do, or why not, and do nothing")
}

// OneOf gives c a flag that is one of some words; usage has %s where they are named. A wrong word is refused before anything is done.
func OneOf(c *cobra.Command, to *string, name, short, usage string, words ...string) {
	last := len(words) - 1
	allowed := strings.Join(words[:last], ", ") + " or " + words[last]
	c.Flags().VarP(&oneOf{to, words, allowed}, name, short, fmt.Sprintf(usage, allowed))
	c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

type oneOf struct {
	to      *string
	words   []string
	allowed string
}

func (f *oneOf) String() string { return "" }
func (f *oneOf) Type() string   { return "form" }
func (f *oneOf) Set(text string) error {
	if !slices.Contains(f.words, text) {
		return fmt.Errorf("it must be %s", f.allowed)
	}
	*f.to = text
	return nil
}

// Amounts are the flags that name amounts of resources.
type Amounts struct {
	flag    map[string]*string // by resource
	storage []string           // amounts, after the name of a storage class or not
	other   map[string]string
}

// Flags gives them to c.
func (a *Amounts) Flags(c *cobra.Command) {
	a.flag = map[string]*string{}
	for _, f := range []struct{ name, resource, usage string }{
		{"cpu", api.CPU, "`AMOUNT` of processors, for example 2 or 500m"},
		{"memory", api.Memory, "`AMOUNT` of memory, for example 4Gi"},
		{"pods", api.Pods, "`NUMBER` of pods"},
		{"gpu", api.GPU, "`NUMBER` of GPUs, of the one kind that there is"},
		{"ephemeral-storage", api.EphemeralStorage, "`AMOUNT` of scratch storage, for example 10Gi"},
	} {
		a.flag[f.resource] = c.Flags().String(f.name, "", f.usage)
		c.RegisterFlagCompletionFunc(f.name, cobra.NoFileCompletions)
	}
	c.Flags().StringSliceVar(&a.storage, "storage", nil, "`AMOUNT` of storage for volumes, for example 20Gi; fast=2Gi is of the storage class fast there")
	c.RegisterFlagCompletionFunc("storage", cobra.NoFileCompletions)
	c.Flags().StringToStringVar(&a.other, "resource", nil, "`NAME=AMOUNT` of any other resource, for example nvidia.com/gpu=1")
}

// ParseAmounts reads "cpu=2,memory=20%"; "" is none.
func ParseAmounts(field, text string) (api.Resources, error) {
	r := api.Resources{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, amount, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return nil, api.Invalid(field, part, "NAME=AMOUNT with commas, for example cpu=2,memory=4Gi")
		}
		r[name] = amount
	}
	return r, nil
}

// Shared gives what was named to be offered: amounts, or parts of what there is ("50%").
func (a *Amounts) Shared() (api.Resources, error) {
	r := a.named()
	return r, api.CheckResources("resource", r, true)
}

// Asked gives what was named to be asked for.
func (a *Amounts) Asked() (api.Resources, error) {
	r := a.named()
	return r, api.CheckAsked("resource", r)
}

func (a *Amounts) named() api.Resources {
	r := api.Resources{}
	for name, amount := range a.other {
		r[name] = amount
	}
	for name, amount := range a.flag {
		if *amount != "" {
			r[name] = *amount
		}
	}
	for _, text := range a.storage {
		class, amount, ofClass := strings.Cut(text, "=")
		if !ofClass {
			class, amount = "", text
		}
		r[api.StorageOf(class)] = amount
	}
	return r
}
