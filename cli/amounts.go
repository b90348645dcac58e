package cli

import (
	"github.com/spf13/cobra"

	"kith.dev/core/api"
)

// amounts are the flags that name amounts of resources.
type amounts struct {
	flag  map[string]*string // by resource
	other map[string]string
}

func (a *amounts) flags(c *cobra.Command) {
	a.flag = map[string]*string{}
	for _, f := range []struct{ name, resource, usage string }{
		{"cpu", api.CPU, "`AMOUNT` of processors, for example 2 or 500m"},
		{"memory", api.Memory, "`AMOUNT` of memory, for example 4Gi"},
		{"pods", api.Pods, "`NUMBER` of pods"},
		{"gpu", api.GPU, "`NUMBER` of GPUs, of the one kind that there is"},
		{"storage", api.Storage, "`AMOUNT` of persistent storage, for example 20Gi"},
		{"ephemeral-storage", api.EphemeralStorage, "`AMOUNT` of scratch storage, for example 10Gi"},
	} {
		a.flag[f.resource] = c.Flags().String(f.name, "", f.usage)
		c.RegisterFlagCompletionFunc(f.name, cobra.NoFileCompletions)
	}
	_ = c.Flags().MarkHidden("storage") // it is refused, in more words than an unknown flag is
	c.Flags().StringToStringVar(&a.other, "resource", nil, "`NAME=AMOUNT` of any other resource, for example nvidia.com/gpu=1")
}

// shared gives what was named to be offered: amounts, or parts of what there is ("50%").
func (a *amounts) shared() (api.Resources, error) {
	r := a.named()
	return r, api.CheckResources("resource", r, true)
}

// asked gives what was named to be asked for.
func (a *amounts) asked() (api.Resources, error) {
	r := a.named()
	return r, api.CheckAsked("resource", r)
}

func (a *amounts) named() api.Resources {
	r := api.Resources{}
	for name, amount := range a.other {
		r[name] = amount
	}
	for name, amount := range a.flag {
		if *amount != "" {
			r[name] = *amount
		}
	}
	return r
}
