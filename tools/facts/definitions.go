package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	aggregator "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kubernetes "k8s.io/kubernetes/pkg/generated/openapi"
)

// definitions are the published OpenAPI definitions by model name. Their descriptions are not used.
func definitions() map[string]*spec.Schema {
	found := map[string]*spec.Schema{}
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + path) }
	for _, get := range []common.GetOpenAPIDefinitions{aggregator.GetOpenAPIDefinitions, kubernetes.GetOpenAPIDefinitions} {
		for name, def := range get(ref) {
			model := def.Schema
			found[name] = &model
		}
	}
	return found
}

func modelName(goType reflect.Type) string {
	if named, ok := reflect.Zero(goType).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return ""
}

// enum returns the values that a string may have, in the order of the definition; "" when there is no list.
func enum(at *spec.Schema) string {
	if at == nil {
		return ""
	}
	values := []string{}
	for _, value := range at.Enum {
		values = append(values, fmt.Sprint(value))
	}
	return strings.Join(values, "|")
}

func property(def *spec.Schema, name string) *spec.Schema {
	if def == nil {
		return nil
	}
	at := def.Properties[name]
	return &at
}

func items(at *spec.Schema) *spec.Schema {
	if at == nil || at.Items == nil {
		return nil
	}
	return at.Items.Schema
}

func values(at *spec.Schema) *spec.Schema {
	if at == nil || at.AdditionalProperties == nil {
		return nil
	}
	return at.AdditionalProperties.Schema
}

// unions returns the extension of that name as JSON.
func unions(def *spec.Schema) string {
	if def == nil || def.Extensions["x-kubernetes-unions"] == nil {
		return ""
	}
	text, err := json.Marshal(def.Extensions["x-kubernetes-unions"])
	must(err)
	return string(text)
}

// said returns what the definition of a field adds to its Go type: r required, l it has a list type, m it has a map type, n it
// has no default though its type would have one, d=… another default than that of its type.
func said(field reflect.StructField, omitted bool, def *spec.Schema, name string) string {
	if def == nil {
		return ""
	}
	property, ok := def.Properties[name]
	if !ok {
		return "?"
	}
	words := []string{}
	if slices.Contains(def.Required, name) {
		words = append(words, "r")
	}
	if property.Extensions["x-kubernetes-list-type"] != nil {
		words = append(words, "l")
	}
	if property.Extensions["x-kubernetes-map-type"] != nil {
		words = append(words, "m")
	}
	has, usual := "", zero(field.Type)
	if omitted && usual != "{}" {
		usual = ""
	}
	if property.Default != nil {
		text, err := json.Marshal(property.Default)
		must(err)
		has = string(text)
	}
	switch {
	case has == usual:
	case has == "":
		words = append(words, "n")
	default:
		words = append(words, "d="+has)
	}
	return strings.Join(words, " ")
}

// zero returns the default that a definition gives to a type by itself; optional types have none.
func zero(goType reflect.Type) string {
	if _, ok := leaves[fullName(goType)]; ok {
		return ""
	}
	if _, ok := either[fullName(goType)]; ok {
		return ""
	}
	switch goType.Kind() {
	case reflect.String:
		return `""`
	case reflect.Bool:
		return "false"
	case reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint8, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return "0"
	case reflect.Struct:
		return "{}"
	}
	return ""
}
